"""Where nothing is kept for a backward pass, segments are read by a fused kernel."""

import pytest
import torch

from tests.mechanisms.building import build

READ = (
    ("transformer_xl", {"segment": 7, "memory": 9}),
    ("compressive_transformer", {"segment": 6, "memory": 6, "compressed": 4, "rate": 2}),
    ("etc", {"global_tokens": 3, "radius": 4, "clip": 2}),
    ("etc", {"global_tokens": 1, "radius": 90, "clip": 5}),
)


@pytest.mark.parametrize(("mechanism", "options"), READ)
@pytest.mark.parametrize("before", [None, 0, 11])
def test_outputs_are_those_of_a_pass_that_keeps_weights(mechanism, options, before, monkeypatch):
    monkeypatch.setattr("attnbench.mechanisms.etc.BLOCK", 8)
    module = build(mechanism, seq_len=40, **options).eval()
    x, mask = torch.randn(2, 40, 16).double(), None
    if before is not None:
        mask = torch.ones(2, 40, dtype=torch.bool)
        mask[0, :before], mask[1, 30:] = False, False
    kept = module(x, mask).detach()
    with torch.no_grad():
        torch.testing.assert_close(module(x, mask), kept)
