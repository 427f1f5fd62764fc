"""Layers of earlier models: what they do not have, and the lengths that they take."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from attnbench.mechanisms.catalogue.registry import card
from attnbench.mechanisms.peers.transformers.earlier import FORMS
from attnbench.records import Level, Workload

W = Workload(batch=2, seq_len=64, width=16, heads=4, level=Level.ATTENTION)


@pytest.mark.parametrize(
    ("name", "options", "changes", "said"),
    [
        ("longformer", {"window": 8}, {}, ""),
        ("longformer", {"window": 8, "dilation": 2}, {}, "has no dilation"),
        ("longformer", {"window": 8}, {"seq_len": 60}, "60 is not a multiple of 8"),
        ("bigbird", {"block": 4, "global_tokens": 8, "random_tokens": 4}, {}, ""),
        ("bigbird", {"block": 4, "global_tokens": 4, "random_tokens": 4}, {}, "global_tokens=8"),
        (
            "bigbird",
            {"block": 4, "global_tokens": 8, "random_tokens": 4},
            {"seq_len": 28},
            "28 is not a multiple of 4 of at least 32",
        ),
        ("nystromformer", {"landmarks": 8}, {}, ""),
        ("nystromformer", {"landmarks": 8}, {"dtype": "bfloat16"}, "mixes bfloat16 with float32"),
        ("nystromformer", {"landmarks": 6}, {}, "64 is not a multiple of 6"),
        ("reformer", {"chunk": 8}, {}, ""),
        ("reformer", {"chunk": 8, "within_bucket": True}, {}, "attends across buckets"),
        ("reformer", {"chunk": 8}, {"seq_len": 8}, "8 is not a multiple of 8 of at least 16"),
        ("transformer_xl", {}, {"causal": True}, ""),
        ("transformer_xl", {"bias": True}, {"causal": True}, "has no biases"),
    ],
)
def test_what_a_model_does_not_have_is_refused(name, options, changes, said):
    found = FORMS[name].unsupported_reason(card(name).config(**options), replace(W, **changes))
    assert said in (found or "")
    assert bool(found) is bool(said)


def built(name, w=W, **options):
    """The form of the package and `eager` with the same parameters, or a skip."""
    own = card(name)
    config = own.config(**options)
    if reason := own.refusal("transformers", config, w):
        pytest.skip(reason)
    torch.manual_seed(0)
    eager = own.forms["eager"](config, w).eval()
    form = own.forms["transformers"](config, w).eval()
    form.load_state_dict(eager.state_dict())
    return form, eager


@pytest.mark.filterwarnings("ignore")
def test_global_tokens_and_padding_of_longformer_are_those_of_the_mechanism():
    w = replace(W, padding=0.25)
    form, eager = built("longformer", w, window=8, global_tokens=2)
    x = torch.randn(2, 64, 16)
    mask = torch.arange(64).expand(2, -1) < 48
    with torch.no_grad():
        assert_close(form(x, mask)[:, :48], eager(x, mask)[:, :48], rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_segments_of_transformer_xl_read_their_memory_and_no_residual_is_left():
    w = replace(W, seq_len=20, causal=True)
    form, eager = built("transformer_xl", w, segment=8, memory=8)
    x = torch.randn(2, 20, 16)
    with torch.no_grad():
        assert_close(form(x), eager(x), rtol=1e-4, atol=1e-5)
        R = form.sinusoids(5, x)
    assert R.shape == (6, 1, 16)
    assert_close(R[-1, 0], torch.cat([torch.zeros(8), torch.ones(8)]), msg="p is 0 there")
