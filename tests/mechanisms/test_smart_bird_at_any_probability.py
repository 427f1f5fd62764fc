"""Smart Bird draws the K largest of U(0, P) whatever P is, and however many it draws."""

from itertools import pairwise

import pytest
import torch

from attnbench.mechanisms.smart_bird import first_distinct, largest

ROWS, HEADS = 4000, 2


def exact(log_P, K, rows):
    """Keys [rows, K] of as many draws for every key, in float64."""
    u = torch.rand(rows, len(log_P), dtype=torch.float64)
    return (u.log() + log_P).topk(K).indices


def agree(found, expected, count):
    """Whether inclusion in two samples of equal size deviates by less than 4.5 σ for every key."""
    a, b = (torch.bincount(x.flatten(), minlength=count).double() for x in (found, expected))
    trials = found.flatten(0, -2).shape[0]
    share = (a + b) / (2 * trials)
    deviation = (2 * trials * share * (1 - share)).sqrt()
    return bool(((a - b).abs() <= 4.5 * deviation + 4).all())


def steep(count, step):
    """Logs of P that fall by `step` from key to key, in an order of their own."""
    generator = torch.Generator().manual_seed(5)
    return -step * torch.randperm(count, generator=generator).double()


def cliffs(count, heights, width):
    """Plateaus of `width` keys, as far below the first as `heights` say, which the last fills."""
    starts = [*range(0, width * len(heights), width), count]
    sizes = [b - a for a, b in pairwise(starts)]
    return torch.cat([torch.full((n,), -h).double() for n, h in zip(sizes, heights, strict=False)])


CASES = {
    "keys below all others, some far below": (cliffs(80, (0.0, 71.0, 72.0), 3), 8),
    "two far plateaus that differ by 1": (cliffs(100, (0.0, 90.0, 91.0), 8), 12),
    "steep": (steep(90, 10.0), 10),
    "very steep": (steep(60, 1000.0), 5),
    "beside a plateau": (cliffs(200, (0.0, 39.0, 75.0), 11), 20),
    "all equal": (steep(64, 0.0), 8),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("masked", [False, True])
def test_inclusion_is_that_of_draws_for_every_key(name, masked):
    log_P, K = CASES[name]
    torch.manual_seed(3)
    allowed = torch.ones(ROWS, len(log_P), dtype=torch.bool)
    given = log_P.float().expand(ROWS, -1)
    if masked:  # two of the likeliest keys more, which may not be drawn
        first = torch.full((ROWS, 2), 5.0)
        given = torch.cat([given, first], 1)
        allowed = torch.cat([allowed, torch.zeros_like(first, dtype=torch.bool)], 1)
    found = largest(given, allowed if masked else None, K, HEADS)
    assert found.shape == (ROWS, HEADS, K)
    assert all(len(row.unique()) == K for row in found[:200].flatten(0, 1))
    assert found.max() < len(log_P)
    assert agree(found, exact(log_P, K, ROWS * HEADS), len(log_P))


def test_rows_that_draw_in_different_ways_stay_in_their_places():
    torch.manual_seed(3)
    log_P = torch.zeros(6, 64)
    log_P[::2, :60] = -200.0
    found = largest(log_P, None, 4, HEADS)
    assert (found[::2].sort(-1).values == torch.arange(60, 64)).all()
    assert found[1::2].min() < 60


def test_many_draws_have_more_numbers_than_16_bits():
    """2 distinct keys come once each, after 40,000 events of one key."""
    keys = torch.zeros(1, 1, 40_002, dtype=torch.long)
    keys[..., -2:] = torch.tensor([1, 2])
    found, certain = first_distinct(keys, torch.ones_like(keys, dtype=torch.bool), 3, 4)
    assert found.flatten().tolist() == [0, 1, 2]
    assert certain.all()


@pytest.mark.parametrize("step", [0.01, 0.5, 100.0])
def test_many_keys_are_drawn_at_any_slope(step):
    """512 of 4,096, each once, and the likeliest more often."""
    torch.manual_seed(4)
    log_P = steep(4096, step)
    found = largest(log_P.float().expand(8, -1), None, 512, HEADS).flatten(0, 1)
    assert all(len(row.unique()) == 512 for row in found)
    rank = (-log_P / step).round()[found].mean()
    expected = (-log_P / step).round()[exact(log_P, 512, 16)].mean()
    assert rank.item() == pytest.approx(expected.item(), rel=0.05)
