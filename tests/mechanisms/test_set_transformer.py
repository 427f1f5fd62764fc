"""Set Transformer: limit case and seeds."""

import pytest
import torch

from tests.mechanisms.building import build


def test_sab_with_zero_output_projection_is_softmax_attention_scaled_by_the_width():
    module = build("set_transformer", seq_len=9, block="sab")
    full = build("transformer", seq_len=9)
    full.load_state_dict(module.block.state_dict())
    with torch.no_grad():
        module.block.output.weight.zero_()
        full.output.weight.copy_(torch.eye(16))
        full.query.weight.mul_((16 / 4) ** -0.5)  # 1 / √D for 1 / √d
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    torch.testing.assert_close(module(x) - module.block.query(x), full(x))


@pytest.mark.parametrize("seeds", [1, 4, 20])
def test_pma_assigns_seeds_to_tokens_in_turn(seeds):
    module = build("set_transformer", seq_len=9, block="pma", points=seeds)
    y = module(torch.randn(2, 9, 16, dtype=torch.float64))
    assert y.shape == (2, 9, 16)
    for i in range(9):
        torch.testing.assert_close(y[:, i], y[:, i % seeds])
    assert len(y[0].unique(dim=0)) == min(seeds, 9)
