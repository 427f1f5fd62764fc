"""Sparse Sinkhorn attention: noise in training."""

import pytest
import torch

from attnbench.mechanisms.sinkhorn import reference
from tests.mechanisms.building import build


@pytest.mark.parametrize("form", ["eager", "sdpa"])
@pytest.mark.parametrize("causal", [False, True])
def test_noise_is_drawn_in_training_and_can_be_reproduced(form, causal):
    module = build("sinkhorn", form, seq_len=17, causal=causal, block=4)
    x = torch.randn(2, 17, 16, dtype=torch.float64)
    assert module.eval()(x).equal(module(x))
    assert module.draws(0) == {}
    torch.manual_seed(3)
    y = module.train()(x)
    assert not torch.allclose(y, module(x))
    torch.manual_seed(3)
    assert module(x).equal(y)
    rows = [reference(module, x[b], None, module.draws(b)) for b in range(2)]
    torch.testing.assert_close(y, torch.stack(rows))
