"""BlockBERT: the permutations of its blocks."""

import pytest
import torch

from attnbench.mechanisms.blockwise import Blockwise, Config
from attnbench.records import Workload


def permutations(heads=4, **options):
    w = Workload(batch=2, seq_len=23, width=4 * heads, heads=heads, level="attention")
    return Blockwise(Config(**options), w).pi


@pytest.mark.parametrize(("blocks", "shares"), [(2, [10, 2]), (3, [8, 2, 2])])
def test_cyclic_shifts_get_as_many_heads_as_in_the_paper(blocks, shares):
    pi = permutations(heads=12, blocks=blocks)
    assert pi[:, 0].bincount(minlength=blocks).tolist() == shares


def test_random_permutations_depend_on_the_seed_alone():
    pi = permutations(blocks=7, permutation="random")
    torch.manual_seed(99)
    assert torch.equal(permutations(blocks=7, permutation="random"), pi)
    assert torch.equal(pi.sort(-1).values, torch.arange(7).expand(4, -1))
    assert not torch.equal(permutations(blocks=7, permutation="random", seed=1), pi)
