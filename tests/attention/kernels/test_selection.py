"""Attention to chosen blocks of keys: the choice, and reading it by block."""

import pytest
import torch
from torch.testing import assert_close

from attnbench.attention.kernels import selection
from attnbench.attention.kernels.selection import (
    allowed_tokens,
    choose,
    read_allowed,
    read_chosen,
    top_blocks,
)
from tests.kept import kept_bytes

B, K, G, N, D = 2, 2, 3, 45, 4


def drawn(C, shares, count=2):
    torch.manual_seed(0)
    q = torch.randn(B, K * G, N, D, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(B, K, N, D, dtype=torch.float64, requires_grad=True) for _ in "kv")
    return q, k, v, top_blocks(torch.randn(B, shares, N, -(-N // C)), count, 0, C)


def padding():
    mask = torch.ones(B, N, dtype=torch.bool)
    mask[0, :3], mask[1, 30:] = False, False
    return mask


@pytest.fixture(params=["fused", "plain"])
def kernel(request, monkeypatch):
    """By the kernel of a CPU, and by products as on other devices."""
    if request.param == "plain":
        monkeypatch.setattr(selection, "fused", lambda q: False)


@pytest.mark.parametrize("C", [1, 8, 45, 64])
@pytest.mark.parametrize("shares", [1, K])
@pytest.mark.parametrize("masked", [False, True])
def test_by_block_it_is_what_weights_of_all_keys_give(C, shares, masked, kernel):
    q, k, v, choice = drawn(C, shares)
    if C == 1:  # a token is a block of its own, which is read
        choice = choice & ~torch.eye(N, dtype=torch.bool)
        allowed = choice | torch.eye(N, dtype=torch.bool)
    else:
        allowed = allowed_tokens(choice, 0, N, C)
    mask = padding() if masked else None
    real = 1 if mask is None else mask[:, None, :, None]
    weights, results = torch.randn_like(q), []
    for o in (read_allowed(q, k, v, allowed, mask), read_chosen(q, k, v, choice, mask, C)):
        o = o * real
        results.append([o, *torch.autograd.grad((o * weights).sum(), (q, k, v))])
    for a, b in zip(*results, strict=True):
        assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
def test_outputs_from_a_token_on_are_the_last_of_all(masked, kernel):
    q, k, v, choice = drawn(8, K)
    mask = padding() if masked else None
    every, last = (read_chosen(q, k, v, choice, mask, 8, first) for first in (0, 24))
    assert_close(last, every[:, :, 24:])
    expected = torch.autograd.grad(every[:, :, 24:].sum(), (q, k, v))
    for a, b in zip(torch.autograd.grad(last.sum(), (q, k, v)), expected, strict=True):
        assert_close(a, b)


@pytest.mark.parametrize(("C", "count"), [(1, 3), (5, 2), (5, 100)])
def test_a_choice_is_of_the_largest_scores_of_earlier_blocks(C, count):
    scores = torch.randn(B, 1, N, -(-N // C))
    choice = top_blocks(scores, count, 0, C)
    for i in range(N):
        earlier = scores[1, 0, i, : i // C + (C == 1)]
        best = earlier.argsort(descending=True)[:count].sort()[0]
        assert choice[1, 0, i].nonzero()[:, 0].equal(best)


def test_a_choice_in_parts_is_that_of_all_queries():
    q, keys = torch.randn(1, 64, 4096, 2), torch.randn(1, 64, 2, 64)
    parts = []

    def score(part, first):
        parts.append(first)
        return part @ keys

    assert choose(score, q, 64, 64, 3, 64).equal(top_blocks(q @ keys, 3, 0, 64))
    assert len(parts) > 1


def test_scores_that_tie_at_zero_choose_the_latest():
    choice = top_blocks(torch.zeros(1, 1, 40, 10), 2, 0, 4)
    assert choice[0, 0, -1].nonzero()[:, 0].tolist() == [7, 8]


def test_neither_scores_nor_copies_are_kept():
    q, k, v, choice = drawn(8, K)
    kept, _ = kept_bytes(read_chosen, q, k, v, choice, None, 8)
    inputs = sum(t.nbytes for t in (q, k, v, choice))
    assert kept < 2.5 * inputs
