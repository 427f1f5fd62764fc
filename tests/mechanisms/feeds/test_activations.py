"""Activations by the names that models have for them, against their formulas."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.mechanisms.feeds.activations import ACTIVATIONS, CLAMPED, LIMIT, gated


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


FORMULAS = {
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    "relu": lambda x: max(x, 0.0),
    "relu2": lambda x: max(x, 0.0) ** 2,
    CLAMPED: lambda x: x * sigmoid(1.702 * x),
}


@given(st.sampled_from(sorted(ACTIVATIONS)), st.floats(-20, 20))
def test_an_activation_is_what_its_name_means(name, x):
    found = ACTIVATIONS[name](torch.tensor(x, dtype=torch.float64)).item()
    assert found == pytest.approx(FORMULAS[name](x), rel=1e-9, abs=1e-9)


@given(st.floats(-20, 20), st.floats(-20, 20))
def test_a_gate_multiplies_and_a_clamped_one_keeps_both_within_its_limit(gate, up):
    a, b = (torch.tensor(x, dtype=torch.float64) for x in (gate, up))
    assert gated("silu", a, b).item() == pytest.approx(FORMULAS["silu"](gate) * up, abs=1e-9)
    within = max(-LIMIT, min(LIMIT, up)) + 1
    expected = FORMULAS[CLAMPED](min(gate, LIMIT)) * within
    assert gated(CLAMPED, a, b).item() == pytest.approx(expected, abs=1e-9)


def test_every_activation_has_a_formula_here():
    assert FORMULAS.keys() == ACTIVATIONS.keys()
