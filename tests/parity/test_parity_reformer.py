"""Reformer against transformers and reformer-pytorch, with equal parameters and hashes."""

import pytest
import torch

from attnbench.mechanisms.reformer import Config
from attnbench.records import Level, Workload
from tests.oracles import pair

CHUNK, ROUNDS, N = 8, 3, 64


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("package", "within"),
    [("transformers", False), ("reformer_pytorch", False), ("reformer_pytorch", True)],
)
def test_it_equals_the_package(package, within, causal, monkeypatch):
    w = Workload(batch=2, seq_len=N, width=32, heads=4, level=Level.ATTENTION, causal=causal)
    config = Config(chunk=CHUNK, rounds=ROUNDS, buckets=N // CHUNK, within_bucket=within)
    ours, theirs = pair("reformer", ("eager", package), config, w)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, N, 32, dtype=torch.float64)
    y = ours(x)
    if package == "transformers":
        buckets = (ours.buckets + N // CHUNK * torch.arange(ROUNDS)[:, None]).flatten(2)
        hashing = "_hash_vectors"
    else:
        # there is one bucket per chunk, so any offset above that number separates the rounds
        buckets = (ours.buckets + 1000 * torch.arange(ROUNDS)[:, None]).flatten(0, 1).flatten(1)
        hashing = "hash_vectors"
    monkeypatch.setattr(theirs.package_layer, hashing, lambda *_, **__: buckets)
    torch.testing.assert_close(y, theirs(x), rtol=1e-4, atol=1e-4)
