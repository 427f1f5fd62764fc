"""BlockBERT: the permutations of its blocks."""

import pytest
import torch

from tests.mechanisms.building import build


@pytest.mark.parametrize(("blocks", "shares"), [(2, [10, 2]), (3, [8, 2, 2])])
def test_cyclic_shifts_get_as_many_heads_as_in_the_paper(blocks, shares):
    pi = build("blockwise", seq_len=23, width=48, heads=12, blocks=blocks).pi
    assert pi[:, 0].bincount(minlength=blocks).tolist() == shares


def test_random_permutations_depend_on_the_seed_alone():
    pi, again, other = (
        build("blockwise", blocks=7, permutation="random", seed=seed).pi for seed in (0, 0, 1)
    )
    assert torch.equal(again, pi)
    assert torch.equal(pi.sort(-1).values, torch.arange(7).expand(4, -1))
    assert not torch.equal(other, pi)
