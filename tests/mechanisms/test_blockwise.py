"""BlockBERT against dense attention under its mask; permutations."""

import pytest
import torch

from attnbench.attention.contract import merge
from attnbench.mechanisms.blockwise import CARD, Config
from attnbench.records import Workload


def build(config, form="eager", seq_len=23, heads=4):
    torch.manual_seed(0)
    w = Workload(batch=2, seq_len=seq_len, width=4 * heads, heads=heads, level="attention")
    return CARD.forms[form](config, w).double()


@pytest.mark.parametrize("form", ["eager", "sdpa"])
@pytest.mark.parametrize(
    "config", [Config(blocks=3), Config(blocks=5, permutation="random")], ids=str
)
def test_it_equals_dense_attention_under_its_mask(config, form):
    module = build(config, form)
    x = torch.randn(2, 23, 16, dtype=torch.float64)
    block = torch.arange(23) // -(-23 // config.blocks)
    allowed = module.pi[:, block, None] == block  # [H, N, N]
    q, k, v = (module.split(f(x)) for f in (module.query, module.key, module.value))
    scores = (q @ k.mT / 2).masked_fill(~allowed, -torch.inf)
    expected = module.output(merge(scores.softmax(-1).nan_to_num(0) @ v))
    torch.testing.assert_close(module(x), expected)


@pytest.mark.parametrize(("blocks", "shares"), [(2, [10, 2]), (3, [8, 2, 2])])
def test_cyclic_shifts_get_as_many_heads_as_in_the_paper(blocks, shares):
    pi = build(Config(blocks=blocks), heads=12).pi
    assert pi[:, 0].bincount(minlength=blocks).tolist() == shares


def test_random_permutations_depend_on_the_seed_alone():
    config = Config(blocks=7, permutation="random")
    pi = build(config).pi
    torch.manual_seed(99)
    assert torch.equal(build(config).pi, pi)
    assert torch.equal(pi.sort(-1).values, torch.arange(7).expand(4, -1))
    assert not torch.equal(build(Config(blocks=7, permutation="random", seed=1)).pi, pi)
