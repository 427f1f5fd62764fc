"""RWKV-7: how far it reads the token before."""

import torch

from tests.mechanisms.building import build


def test_a_token_reads_the_one_before_it_as_far_as_it_is_mixed_in():
    module = build("rwkv7", "chunked", seq_len=40)
    x = torch.randn(1, 2, 16, dtype=torch.float64)
    module.mu.data.fill_(1.0)
    _, state = module.extend(x, None, module.start(1, 2))
    other = torch.cat([x[:, :1], torch.randn(1, 1, 16, dtype=torch.float64)], 1)
    _, after = module.extend(other, None, module.start(1, 2))
    torch.testing.assert_close(state.S, after.S)
    assert state.inputs.equal(x[:, 1:])
    module.mu.data.fill_(0.5)
    assert not module.extend(other, None, module.start(1, 2))[1].S.allclose(after.S)
