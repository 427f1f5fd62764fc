"""Sliding windows: what each token reads, blocks, sinks and the ring."""

import pytest
import torch

from attnbench.mechanisms import sliding_window
from attnbench.mechanisms.sliding_window import CARD, Config
from attnbench.records import Mode
from tests.mechanisms.building import build, reads, workload


@pytest.mark.parametrize("form", CARD.forms)
@pytest.mark.parametrize(("window", "sinks"), [(1, 0), (4, 0), (4, 1), (3, 5), (8, 2), (1, 30)])
def test_a_token_reads_its_window_and_the_sinks(form, window, sinks):
    read = reads(build("sliding_window", form, window=window, sink_tokens=sinks))
    i, j = torch.arange(20)[:, None], torch.arange(20)
    assert read.equal((j <= i) & ((i - j < window) | (j < sinks)))


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


def test_a_sink_logit_only_shrinks_the_output():
    module = build("sliding_window", window=6, sink_logit=True)
    q, k, v = torch.randn(3, 2, 4, 20, 4, dtype=torch.float64)
    without = build("sliding_window", window=6).attend(q, k, v, None)
    with torch.no_grad():
        module.sink.fill_(-1e9)
        torch.testing.assert_close(module.attend(q, k, v, None), without)
        module.sink.fill_(2.0)
        shares = module.attend(q, k, v, None) / without
    assert ((shares > 0) & (shares < 1)).all()
    torch.testing.assert_close(shares, shares[..., :1].expand_as(shares))


def test_the_ring_stops_growing_at_the_window():
    elements = sliding_window.SlidingWindow.state_elements
    config = Config(window=8, sink_tokens=3, kv_heads=2)
    counts = [elements(config, workload("sliding_window", seq_len=n)) for n in (4, 8, 16, 4096)]
    assert counts == [2 * 2 * 2 * 4 * n for n in (4, 8, 8 + 3, 8 + 3)]


def test_training_keeps_no_scores():
    config, w = Config(window=128), workload("sliding_window", seq_len=4096, mode=Mode.TRAINING)
    blocked, eager = (CARD.forms[form].elements(config, w) for form in ("blocked", "eager"))
    assert blocked < eager / 10
