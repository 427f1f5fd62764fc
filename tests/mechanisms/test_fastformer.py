"""Fastformer: shared parameters, and where each form runs."""

import pytest

from attnbench.mechanisms.fastformer import CARD, Config
from tests.mechanisms.building import workload

NAME = "fastformer"

H, d, D = 4, 4, 16


@pytest.mark.parametrize(
    ("options", "changes", "reason"),
    [
        ({"interaction": "add"}, {}, "only interaction=product"),
        ({}, {"device": "cpu"}, "Triton compiles for GPUs only"),
        ({}, {"device": "cuda", "dtype": "float64"}, "sums in float32"),
    ],
)
def test_the_triton_form_says_why_it_does_not_run(options, changes, reason, monkeypatch):
    monkeypatch.setattr("attnbench.attention.kernels.find_spec", lambda name: name)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    w = workload(NAME, seq_len=8, **{"device": "cuda", **changes})
    assert reason in CARD.refusal("triton", Config(**options), w)
    usual = workload(NAME, seq_len=8, device="cuda:1")
    assert CARD.refusal("triton", Config(), usual) is None
    monkeypatch.setattr("attnbench.attention.kernels.find_spec", lambda name: None)
    assert "pip install triton" in CARD.refusal("triton", Config(), usual)
