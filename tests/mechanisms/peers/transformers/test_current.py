"""Layers of today's models: what they do not have, and how they read this package's parameters."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from attnbench.mechanisms.catalogue.registry import card
from attnbench.mechanisms.peers.transformers.current import FORMS, sharing, sizes_of, unrotated
from attnbench.records import Level, Workload

W = Workload(batch=2, seq_len=12, width=16, heads=4, level=Level.ATTENTION, causal=True)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("gated_delta_net", {}, ""),
        ("gated_delta_net", {"gate": False}, "has no DeltaNet without gates"),
        ("gated_delta_net", {"negative": True}, "has β below 1"),
        ("mamba2", {}, ""),
        ("mamba2", {"heads": 3, "head_width": 8}, "leave heads out"),
        ("latent", {"rope": 4}, ""),
        ("latent", {"rope": 3}, "rope=3 is odd"),
        ("grouped_query", {"kv_heads": 2}, ""),
        ("grouped_query", {"gate": True}, "has neither gate nor sinks"),
        ("grouped_query", {"sink_logit": True}, "has neither gate nor sinks"),
        ("sliding_window", {"window": 4}, ""),
        ("sliding_window", {"sink_tokens": 2}, "has no sinks"),
        ("lightning", {}, ""),
        ("lightning", {"depth": 0.5}, "leave depth out"),
    ],
)
def test_options_that_a_model_does_not_have_are_refused(name, options, said):
    config = card(name).config(**options)
    found = FORMS[name].unsupported_reason(config, W) or ""
    assert said in found
    assert bool(found) is bool(said)


def test_no_rotation_is_by_angles_of_zero():
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    cosines, sines = unrotated(x, 4)
    assert cosines.shape == sines.shape == (1, 5, 4)
    assert (cosines.dtype, cosines.min(), sines.abs().max()) == (torch.float64, 1, 0)


def test_a_layer_gets_the_projections_themselves():
    ours, theirs = nn.Module(), nn.Module()
    for name in ("query", "key", "value", "output"):
        setattr(ours, name, nn.Linear(4, 4))
    assert sharing(ours, theirs) is theirs
    assert theirs.k_proj is ours.key
    assert theirs.o_proj is ours.output
    ours.kv_heads = 2
    sizes = sizes_of(ours, W)
    assert (sizes["num_key_value_heads"], sizes["head_dim"], sizes["hidden_size"]) == (2, 4, 16)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("window", "banded"), [(4, True), (12, False)])
def test_a_window_that_holds_every_token_needs_no_mask(window, banded):
    own = card("sliding_window")
    config = own.config(window=window)
    if reason := own.refusal("transformers", config, W):
        pytest.skip(reason)
    torch.manual_seed(0)
    form = own.forms["transformers"](config, W).eval()
    eager = own.forms["eager"](config, W).eval()
    form.load_state_dict(eager.state_dict())
    band = form.package_layer.band
    assert (band is not None) is banded
    if banded:
        assert band.sum(-1).tolist() == [min(row + 1, window) for row in range(12)]
    x = torch.randn(2, 12, 16)
    assert_close(form(x), eager(x), rtol=1e-4, atol=1e-5)
