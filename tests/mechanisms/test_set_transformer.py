"""Set Transformer: limit case, seeds, and where each form is the default."""

import pytest
import torch

from attnbench.mechanisms import set_transformer, transformer
from attnbench.records import Level, Workload


def workload(seq_len=9, **sizes):
    sizes = {"batch": 2, "width": 16, "heads": 4, **sizes}
    return Workload(seq_len=seq_len, level=Level.ATTENTION, **sizes)


def build(form="eager", **options):
    torch.manual_seed(0)
    module = set_transformer.CARD.forms[form](set_transformer.Config(**options), workload())
    return module.double()


def test_sab_with_zero_output_projection_is_softmax_attention_scaled_by_the_width():
    module = build(block="sab")
    full = transformer.Transformer(transformer.Config(), workload()).double()
    full.load_state_dict(module.block.state_dict())
    with torch.no_grad():
        module.block.output.weight.zero_()
        full.output.weight.copy_(torch.eye(16))
        full.query.weight.mul_((16 / 4) ** -0.5)  # 1 / √D for 1 / √d
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    torch.testing.assert_close(module(x) - module.block.query(x), full(x))


@pytest.mark.parametrize("seeds", [1, 4, 20])
def test_pma_assigns_seeds_to_tokens_in_turn(seeds):
    module = build(block="pma", points=seeds)
    y = module(torch.randn(2, 9, 16, dtype=torch.float64))
    assert y.shape == (2, 9, 16)
    for i in range(9):
        torch.testing.assert_close(y[:, i], y[:, i % seeds])
    assert len(y[0].unique(dim=0)) == min(seeds, 9)


def test_folding_is_chosen_where_it_is_less_work():
    choose, config = set_transformer.CARD.default, set_transformer.Config()
    usual = {"width": 256, "heads": 16}
    assert choose(config, workload(2048, **usual)) == "folded"
    assert choose(config, workload(64, **usual)) == "eager"
    assert choose(set_transformer.Config(points=64), workload(2048, **usual)) == "eager"
    assert choose(set_transformer.Config(block="sab"), workload(2048, **usual)) == "sdpa"
