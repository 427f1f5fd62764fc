"""Recurrences in chunks against the same recurrences token by token."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from attnbench.attention.card import Tolerance
from attnbench.attention.kernels.recurrence import (
    by_token,
    decay_rule,
    delta_rule,
    delta_token,
    dplr_rule,
    pairs,
    spans,
)

B, DK, DV = 2, 4, 6
STRONG = 20.0  # |log decay| of a token
FLOAT32 = Tolerance().float32


def drawn(N, heads=4, groups=4, strength=0.5, dtype=torch.float64, constant=False, seed=0):
    """S, g, q, k, v and β, with normalised keys and decays of up to `strength`."""
    torch.manual_seed(seed)
    q, k = torch.randn(2, B, groups, N, DK, dtype=dtype)
    g = -strength * torch.rand((1, heads, 1) if constant else (B, heads, N), dtype=dtype)
    v, beta = torch.randn(B, heads, N, DV, dtype=dtype), torch.rand(B, heads, N, dtype=dtype)
    S = torch.randn(B, groups, DK, heads // groups, DV, dtype=dtype)
    return S, g, q, k / k.norm(dim=-1, keepdim=True), v, beta


def decay(inputs, chunk):
    return decay_rule(*inputs[:5], chunk)


def delta(inputs, chunk):
    S, *others = inputs
    return delta_rule(S.squeeze(3), *others, chunk)


def by_row(inputs):
    """The same with one decay for each row of S."""
    S, g, q, k, *others = inputs
    rates = torch.arange(1, DK + 1, dtype=g.dtype) / 2
    return S, g[..., None].expand(*k.shape[:3], 1) * rates, q, k, *others


def row_decay(inputs, chunk):
    S, *others = by_row(inputs)
    return decay_rule(S.squeeze(3), *others[:4], chunk)


def row_delta(inputs, chunk):
    return delta(by_row(inputs), chunk)


def dplr(inputs, chunk):
    """What is removed is read at k and written at β k; what is added, at another key.

    Its decays are bounded.
    """
    S, g, q, k, v, beta = by_row(inputs)
    g = g.clamp(min=-1)
    return dplr_rule(S.squeeze(3), g, q, q.flip(-1), v, beta[..., None] * k, k, chunk)


RULES = [decay, delta, row_decay, row_delta, dplr]


def results(rule, inputs, chunk):
    """The outputs, the last state, and the gradients of all inputs that the rule reads."""
    copies = [x.clone().requires_grad_() for x in inputs]
    o, S = rule(copies, chunk)
    loss = (o * torch.arange(o.numel()).view(o.shape).cos()).sum() + S.square().sum()
    gradients = torch.autograd.grad(loss, copies, allow_unused=True)
    return [o, S, *(gradient for gradient in gradients if gradient is not None)]


def compare(rule, inputs, chunk):
    """Outputs, last states and gradients, in chunks and token by token."""
    for a, b in zip(results(rule, inputs, chunk), results(rule, inputs, None), strict=True):
        assert_close(a, b, rtol=1e-9, atol=1e-10)


def error(found, exact):
    """The largest error relative to the largest value."""
    return ((found.double() - exact).abs().max() / exact.abs().max()).item()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("chunk", [1, 5, 16, 41, 64])
@pytest.mark.parametrize("strength", [0.1, STRONG])
@pytest.mark.parametrize("constant", [False, True])
def test_chunks_equal_the_recurrence(rule, chunk, strength, constant):
    compare(rule, drawn(41, strength=strength, constant=constant), chunk)


@settings(max_examples=30)
@given(st.integers(1, 40), st.integers(1, 50), st.sampled_from([1, 2]))
def test_groups_share_keys_at_any_length_and_chunk(N, chunk, groups):
    compare(decay, drawn(N, groups=groups), chunk)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("strongest", [0, -10, -100, -1_000, -10_000, -100_000])
def test_one_strong_decay_costs_no_digits_in_float32(rule, strongest):
    """Later sums of a chunk would keep few digits of the differences of weak decays."""
    inputs = drawn(130, strength=0.05, dtype=torch.float32)
    inputs[1][:, :, 1] += strongest
    exact, found = ([x.to(dtype) for x in inputs] for dtype in (torch.float64, torch.float32))
    for a, b in zip(results(rule, found, 64), results(rule, exact, None), strict=True):
        assert error(a, b) < FLOAT32


def test_the_delta_rule_reads_back_what_was_written_last_at_a_key():
    keys, values = torch.eye(DK, dtype=torch.float64), torch.randn(8, DV, dtype=torch.float64)
    k = torch.cat([keys, keys])[None, None]  # each key is written twice
    ones = torch.ones(1, 1, 8, dtype=torch.float64)
    S = torch.zeros(1, 1, DK, DV, dtype=torch.float64)
    _, S = delta_rule(S, 0 * ones, k, k, values[None, None], ones, 3)
    assert_close(S[0, 0], values[4:])


def test_equal_keys_and_full_steps_stay_exact_in_float32():
    """The inverse of I + L has large powers of L here, which cancel."""
    S, _, q, _, v, beta = drawn(64, dtype=torch.float32)
    k = torch.full_like(q, DK**-0.5)
    g, beta = torch.zeros(1, 1, 1), torch.ones_like(beta)
    o, _ = delta_rule(S.squeeze(3), g, q, k, v, beta, 64)
    wide = [x.double() for x in (S.squeeze(3), g, q, k, v, beta)]
    expected, _ = by_token(delta_token, *wide)
    assert_close(o.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("N", "chunk", "most", "found"),
    [
        (10, 4, 9, [(2, 4), (1, 2)]),
        (10, 4, 1, [(1, 4), (1, 4), (1, 2)]),
        (16, 4, 3, [(3, 4), (1, 4)]),
        (3, 8, 9, [(1, 3)]),
    ],
)
def test_the_last_chunk_is_shorter(N, chunk, most, found):
    assert [*spans(N, chunk, most)] == found
    assert pairs(N, chunk) == sum(count * C * C for count, C in found)
