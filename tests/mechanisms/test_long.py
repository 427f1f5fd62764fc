"""Long sequences lose no digits: every form at N = 1,025 against `eager` in float64."""

import pytest
import torch

from attnbench.attention.checks.trial import causal_values
from attnbench.mechanisms.catalogue.registry import card, is_built_in, names
from tests.mechanisms.building import build, workload

# rounding changes which tokens these choose; the contract's checks hold the choice fixed
CHOOSE = {"reformer", "routing_transformer", "smart_bird"}
LENGTH = 1025
SLACK = 2  # times the tolerance of short sequences: gradients are sums over 50 times as many tokens
MECHANISMS = [name for name in names() if is_built_in(name) and name not in CHOOSE]


def computed(name, form, causal, dtype):
    """Output and gradients, from numbers that all types represent."""
    sizes = {"batch": 1, "seq_len": LENGTH, "width": 32, "mode": "training", "causal": causal}
    if reason := card(name).refusal(form, card(name).config(), workload(name, **sizes)):
        pytest.skip(reason)
    module = build(name, form, **sizes)
    with torch.no_grad():
        for p in module.parameters():
            if not p.any():  # zeros would hide what they multiply
                torch.nn.init.normal_(p)
    module.bfloat16().to(dtype)
    x, towards = torch.randn(2, 1, LENGTH, 32).bfloat16().to(dtype)
    torch.manual_seed(1)  # of random features and blocks
    y = module(x.requires_grad_())
    (y * towards).sum().backward()
    gradients = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    return {"y": y.detach(), "x": x.grad, **gradients}


@pytest.mark.long
@pytest.mark.parametrize("name", MECHANISMS)
def test_long_sequences_lose_no_digits(name):
    mechanism = card(name)
    for causal in causal_values(mechanism.causality):
        exact = computed(name, "eager", causal, torch.float64)
        largest = max(value.norm() for key, value in exact.items() if key != "y")
        for form in (form for form in mechanism.own_forms if form != "compiled"):
            for dtype in (torch.float32, torch.bfloat16):
                found = computed(name, form, causal, dtype)
                allowed = SLACK * getattr(mechanism.tolerance, str(dtype).removeprefix("torch."))
                for key, expected in exact.items():
                    error = (found[key].double() - expected).norm()
                    error /= expected.norm() if key == "y" else largest
                    assert error <= allowed, (form, causal, dtype, key)
