"""Smart Bird: sampling probabilities, and the loss of the sketch."""

import pytest
import torch

from attnbench.attention.kernels.primitives import Picked, by_rows
from attnbench.mechanisms.smart_bird import largest
from tests.mechanisms.building import build


def sketched(module, x, allowed=None):
    """A [B, N, N], by the formula."""
    E = x @ module.sketch_embed
    s = E.shape[-1]
    logits = (E @ module.sketch_query) @ (E @ module.sketch_key).mT / s**0.5
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -torch.inf)
    return logits.softmax(-1)


def test_top_takes_the_largest_of_the_sketch_for_all_heads():
    module = build("smart_bird", batch=1, seq_len=30, keys=4, sampling="top")
    x = torch.randn(1, 30, 16, dtype=torch.float64)
    module(x)
    best = sketched(module, x)[0].topk(4).indices.sort().values
    assert module.draws(0)["chosen"].sort().values.equal(best.expand(4, -1, -1))


@pytest.mark.parametrize("sampling", ["squared", "inverse", "raw", "random"])
def test_of_two_keys_each_is_sampled_with_the_expected_probability(sampling):
    module = build("smart_bird", batch=5000, seq_len=2, keys=1, sampling=sampling)
    x = torch.randn(1, 2, 16, dtype=torch.float64).expand(5000, -1, -1)
    torch.manual_seed(1)
    module(x)
    P = torch.ones(2, 2, dtype=torch.float64)
    if sampling != "random":
        A = sketched(module, x[:1])[0]
        P = {"raw": A, "inverse": -1 / A.log(), "squared": 1 / A.log() ** 2}[sampling]
    a, b = P.unbind(-1)
    expected = torch.where(a < b, a / (2 * b), 1 - b / (2 * a))  # of key 0, one for each row
    chosen = torch.stack([module.draws(n)["chosen"] for n in range(5000)])  # [B, H, N, 1]
    frequency = (chosen == 0).double().mean((0, 1, 3))
    deviation = (expected * (1 - expected) / (5000 * 4)).sqrt()
    assert ((frequency - expected).abs() < 4 * deviation).all()


def test_every_head_and_every_call_draws_anew():
    module = build("smart_bird", batch=1, seq_len=40, keys=5)
    x = torch.randn(1, 40, 16, dtype=torch.float64)
    module(x)
    first = module.draws(0)["chosen"]
    module(x)
    assert not torch.equal(first[0].sort().values, first[1].sort().values)
    assert not torch.equal(first, module.draws(0)["chosen"])
    for row in first.flatten(0, 1):
        assert len(row.unique()) == 5


@pytest.mark.parametrize("causal", [False, True])
def test_padding_and_the_future_are_chosen_only_if_too_few_keys_remain(causal):
    module = build("smart_bird", batch=1, seq_len=30, causal=causal, keys=4)
    mask = torch.arange(30)[None] < 20
    module(torch.randn(1, 30, 16, dtype=torch.float64), mask)
    chosen = module.draws(0)["chosen"]
    assert (chosen[:, 4:20] < 20).all()
    if causal:
        assert (chosen[:, 4:20] <= torch.arange(4, 20)[:, None]).all()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_the_loss_compares_the_sketch_with_the_output_and_trains_only_the_sketch(causal, masked):
    module = build("smart_bird", batch=2, seq_len=11, causal=causal, keys=3).train()
    x = torch.randn(2, 11, 16, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(11) < torch.tensor([[11], [7]]) if masked else None
    y = module(x, mask)
    allowed = torch.ones(2, 11, 11, dtype=torch.bool)
    if masked:
        allowed &= mask[:, None]
    if causal:
        allowed &= torch.ones(11, 11, dtype=torch.bool).tril()
    guess = sketched(module, x, allowed) @ (x @ module.sketch_embed) @ module.sketch_value
    error = (guess @ module.sketch_head - y).square().mean(-1)
    real = mask if masked else torch.ones_like(error, dtype=torch.bool)
    loss = module.auxiliary_loss()
    torch.testing.assert_close(loss, error[real].mean())
    loss.backward()
    assert x.grad is None
    assert module.value.weight.grad is None
    assert module.sketch_query.grad.abs().sum() > 0


@pytest.mark.parametrize("spread", [0.0, 0.05, 2.0])
def test_the_largest_draws_are_found_as_if_all_were_drawn(spread):
    """Of 300 keys 5 are drawn, and of the others only the largest come."""
    torch.manual_seed(2)
    P = (spread * torch.randn(300)).exp()
    rows, K = 5000, 5
    found = largest(P.log().expand(rows, -1), None, K, heads=2).flatten(0, 1)
    assert all(len(row.unique()) == K for row in found[:500])
    expected = (torch.rand(2 * rows, 300) * P).topk(K).indices
    order = P.argsort(descending=True)  # groups of keys with similar P, as many are rare
    a, b = (torch.bincount(x.flatten(), minlength=300)[order].view(30, 10).sum(1)
            for x in (found, expected))  # fmt: skip
    assert ((a - b).abs() < 4.5 * (a + b + 1).sqrt()).all()


@pytest.mark.parametrize("tokens", [50, 2**15 + 300])
def test_gradients_of_rows_that_are_read_are_those_of_operators(tokens):
    """Also of rows whose numbers need more than 16 bits."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(n, 3, dtype=torch.float64) for n in (40, tokens, tokens))
    rows = torch.cat([torch.randint(tokens, (40, 3)), torch.full((40, 1), tokens - 1)], 1)
    valid = torch.rand(40, 4) < 0.8
    inputs = [x.requires_grad_() for x in (q, k, v)]
    by_hand, by_operators = Picked.apply(*inputs, rows, valid), by_rows(rows, valid, *inputs)
    weights, real = torch.randn(40, 3).double(), valid.any(-1)
    for o in (by_hand, by_operators):
        torch.testing.assert_close(o[real], by_operators[real])
    ours, expected = (
        torch.autograd.grad((o * weights)[real].sum(), inputs) for o in (by_hand, by_operators)
    )
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_causal_rows_choose_from_all_of_their_past_in_parts_too(monkeypatch):
    """In some head, late rows choose some of the last 15 keys that they may use."""
    monkeypatch.setattr("attnbench.attention.logits_at_once", few_logits)
    module = build("smart_bird", batch=1, seq_len=40, keys=12, causal=True)
    module(torch.randn(1, 40, 16, dtype=torch.float64))
    chosen = module.draws(0)["chosen"]  # [H, N, K]
    rows = torch.arange(40)[:, None]
    assert (chosen <= rows)[:, 11:].all()
    assert (chosen[:, 30:] > rows[30:] - 15).any(-1).any(0).all()


def few_logits(device):
    """So few that each row is a part."""
    return 480
