"""What is measured of a case besides its time: counts, notes, and the error of its output."""

import pytest

from attnbench.devices.finding import find
from attnbench.measuring.memory_and_counts import measure_memory_and_counts, relative_error
from attnbench.measuring.server import Unmeasured
from attnbench.mechanisms.catalogue.registry import card
from attnbench.mechanisms.transformer import Transformer
from attnbench.records import Level, Mode
from tests.measuring.cases import case


def measured(one, **how):
    own = card(one.mechanism)
    config = own.configure(dict(one.options))
    return measure_memory_and_counts(own, config, one, find("cpu"), 0, **how)


@pytest.mark.parametrize(
    ("dtype", "least", "most"),
    [("float64", 0.0, 1e-14), ("float32", 1e-9, 1e-6), ("bfloat16", 1e-4, 3e-2)],
)
def test_an_error_is_that_of_the_number_type(dtype, least, most):
    """The form itself in float64 is what it is compared with."""
    assert least <= relative_error(card("transformer"), case(dtype=dtype), seed=0) <= most


def test_where_the_form_eager_is_refused_there_is_no_error():
    never = case("linformer", causal=True)
    assert relative_error(card("linformer"), never, seed=0) is None


@pytest.mark.parametrize("level", Level)
def test_where_they_are_checked_parameters_and_products_are_those_of_the_layer(level):
    values, _ = measured(case(level=level), checked=True)
    tokens, core = 2 * 32, 4 * 2 * 32 * 32 * 16
    assert "error" not in values
    if level is Level.CORE:
        assert (values["parameters"], values["flops"]) == (0, core)
    else:
        assert values["flops"] == core + 4 * 2 * tokens * 16 * 16
    if level is Level.ATTENTION:
        assert values["parameters"] == 4 * 16 * 16


def test_unless_they_are_checked_the_error_is_measured_and_nothing_is_counted():
    values, notes = measured(case())
    assert 0 < values["error"] < 1e-6
    assert not {"parameters", "flops", "garbage"} & values.keys()
    assert values["allocated_peak_bytes"] > values["allocated_delta_bytes"] > 0
    assert "uncounted" not in notes


def test_a_gradient_that_is_not_finite_is_found_where_the_output_is(monkeypatch):
    honest = Transformer.attend
    monkeypatch.setattr(
        Transformer,
        "attend",
        lambda self, q, k, v, mask: honest(self, q, k, v, mask) + (0 * v).square().sqrt(),
    )
    with pytest.raises(Unmeasured, match="a gradient is not finite"):
        measured(case(mode=Mode.TRAINING), checked=True)
