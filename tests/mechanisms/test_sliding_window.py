"""Sliding windows: many blocks, and what training keeps."""

import pytest
import torch

from attnbench.mechanisms import sliding_window
from attnbench.mechanisms.sliding_window import CARD, Config
from attnbench.records import Mode
from tests.mechanisms.building import build, workload


@pytest.mark.parametrize("block", [16, 64])
@pytest.mark.parametrize(
    "options",
    [
        {"window": 7},
        {"window": 150},
        {"window": 5, "sink_tokens": 3, "kv_heads": 2},
        {"window": 9, "sink_tokens": 4, "sink_logit": True, "kv_heads": 1},
    ],
)
def test_many_blocks_agree_with_the_paper_in_outputs_and_gradients(options, block, monkeypatch):
    monkeypatch.setattr(sliding_window, "BLOCK", block)
    x = torch.randn(2, 300, 16, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(300).expand(2, -1) < torch.tensor([[300], [211]])
    for given in (None, mask):
        results = []
        for form in CARD.forms:
            module = build("sliding_window", form, seq_len=300, **options)
            if options.get("sink_logit"):
                torch.nn.init.normal_(module.sink)
            y = module(x, given)[mask]
            inputs = [x, *module.parameters()]
            gradients = torch.autograd.grad((y * y.detach().cos()).sum(), inputs)
            results.append((y, *gradients))
        for other in results[1:]:
            for a, b in zip(other, results[0], strict=True):
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_training_keeps_no_scores():
    config, w = Config(window=128), workload("sliding_window", seq_len=4096, mode=Mode.TRAINING)
    blocked, eager = (CARD.forms[form].elements(config, w) for form in ("blocked", "eager"))
    assert blocked < eager / 10
