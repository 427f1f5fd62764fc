"""Reformer against transformers and reformer-pytorch, with equal parameters and hashes."""

import pytest
import torch

from attnbench.catalogue.registry import card
from attnbench.mechanisms.reformer import Config
from attnbench.records import Level, Workload

CARD = card("reformer")
FORMS = pytest.mark.parametrize(
    "form", [name for name in CARD.own_forms if not CARD.forms[name].compiles]
)
CAUSAL = pytest.mark.parametrize("causal", [False, True])
CHUNK, ROUNDS, N = 8, 3, 64


def pair(form, package, causal, within=False):
    """Ours and the package's form with its parameters, both with 8 buckets."""
    w = Workload(batch=2, seq_len=N, width=32, heads=4, level=Level.ATTENTION, causal=causal)
    config = Config(chunk=CHUNK, rounds=ROUNDS, buckets=N // CHUNK, within_bucket=within)
    if reason := CARD.refusal(package, config, w):
        pytest.skip(reason)
    torch.manual_seed(0)
    ours, theirs = (CARD.forms[name](config, w).double() for name in (form, package))
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs, torch.randn(2, N, 32, dtype=torch.float64)


@FORMS
@CAUSAL
def test_transformers(form, causal, monkeypatch):
    ours, theirs, x = pair(form, "transformers", causal)
    y = ours(x)
    buckets = (ours.buckets + N // CHUNK * torch.arange(ROUNDS)[:, None]).flatten(2)
    monkeypatch.setattr(theirs.theirs, "_hash_vectors", lambda *_, **__: buckets)
    torch.testing.assert_close(y, theirs(x), rtol=1e-6, atol=1e-8)


@FORMS
@CAUSAL
@pytest.mark.parametrize("within", [False, True])
def test_reformer_pytorch(form, causal, within, monkeypatch):
    ours, theirs, x = pair(form, "reformer_pytorch", causal, within)
    y = ours(x)
    # theirs has one bucket per chunk, so any offset above that number separates the rounds
    buckets = (ours.buckets + 1000 * torch.arange(ROUNDS)[:, None]).flatten(0, 1).flatten(1)
    monkeypatch.setattr(theirs.theirs, "hash_vectors", lambda *_, **__: buckets)
    torch.testing.assert_close(y, theirs(x), rtol=1e-4, atol=1e-4)
