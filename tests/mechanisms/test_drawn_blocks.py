"""How Big Bird draws blocks, and BlockBERT permutes them."""

import pytest
import torch

from attnbench.mechanisms.bigbird import Config, draw
from tests.mechanisms.building import build, workload

CASES = [
    Config(block=4, global_tokens=8, random_tokens=8),
    Config(block=8, global_tokens=5, random_tokens=16, seed=3),
    Config(block=3, global_tokens=0, random_tokens=3),
    Config(block=16, global_tokens=16, random_tokens=48),
]


@pytest.mark.parametrize("config", CASES, ids=str)
@pytest.mark.parametrize("seq_len", [1, 30, 96, 400])
def test_blocks_of_bigbird_are_distinct_and_neither_near_nor_global(config, seq_len):
    random = draw(config, workload("bigbird", seq_len=seq_len))
    n, b = -(-seq_len // config.block), config.block
    assert random.shape == (4, n, config.random_tokens // b)
    for head in random.tolist():
        for i, chosen in enumerate(head):
            free = {c for c in range(n) if abs(c - i) > 1 and c * b >= config.global_tokens}
            drawn = [c for c in chosen if c >= 0]
            assert len(set(drawn)) == len(drawn) == min(len(free), len(chosen))
            assert set(drawn) <= free


def test_every_free_block_of_bigbird_is_drawn_about_equally_often():
    config = Config(block=1, global_tokens=2, random_tokens=3)
    w = workload("bigbird", seq_len=12, width=4000, heads=4000)
    counts = draw(config, w)[:, 6].flatten().bincount(minlength=12)
    free = [2, 3, 4, 8, 9, 10, 11]
    assert counts[free].sum() == 12_000
    # each is drawn with probability 3/7: mean 1714, standard deviation 31
    assert ((counts[free] - 12_000 / 7).abs() < 160).all()


def test_a_draw_of_bigbird_depends_on_the_seed_and_the_head_alone():
    w = workload("bigbird", seq_len=400)
    first, again, other = (
        draw(Config(block=4, global_tokens=8, random_tokens=8, seed=s), w) for s in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])


@pytest.mark.parametrize(("blocks", "shares"), [(2, [10, 2]), (3, [8, 2, 2])])
def test_cyclic_shifts_of_blockwise_get_as_many_heads_as_in_the_paper(blocks, shares):
    pi = build("blockwise", seq_len=23, width=48, heads=12, blocks=blocks).pi
    assert pi[:, 0].bincount(minlength=blocks).tolist() == shares


def test_random_permutations_of_blockwise_depend_on_the_seed_alone():
    pi, again, other = (
        build("blockwise", blocks=7, permutation="random", seed=seed).pi for seed in (0, 0, 1)
    )
    assert torch.equal(again, pi)
    assert torch.equal(pi.sort(-1).values, torch.arange(7).expand(4, -1))
    assert not torch.equal(other, pi)
