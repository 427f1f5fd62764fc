"""The error of each form against the equations as written, in float64."""

import pytest

from attnbench.catalogue.registry import card, names
from attnbench.measure.memory_and_counts import relative_error
from attnbench.records import Level
from tests.measure.cases import case


def core(mechanism, form, dtype="float32"):
    """The card, and a case of its core, causal where it can be."""
    tested, sizes = card(mechanism), {"seq_len": 40, "level": Level.CORE, "dtype": dtype}
    causal, full = (case(mechanism, form, causal=causal, **sizes) for causal in (True, False))
    refused = tested.refusal(form, tested.config(), causal.workload)
    return tested, full if refused else causal


@pytest.mark.parametrize("mechanism", names())
def test_every_form_loses_the_digits_of_its_type_and_no_more(mechanism):
    for form in card(mechanism).own_forms:
        tested, one = core(mechanism, form)
        refused = tested.refusal(form, tested.config(), one.workload)
        if tested.forms[form].compiles or (refused and "core" not in refused):
            continue
        found = relative_error(tested, one, seed=1)
        assert found is not None
        # rounding may change a hash, and with it the bucket of a token
        assert 1e-9 < found < (1e-2 if mechanism == "reformer" else 1e-5), form


def test_a_narrower_type_costs_more_and_float64_nothing():
    errors = [
        relative_error(*core("transformer", "sdpa", dtype), seed=0)
        for dtype in ("float64", "float32", "bfloat16")
    ]
    assert errors[0] < 1e-14 < 1e-9 < errors[1] < 1e-5 < 1e-3 < errors[2] < 0.1


def test_a_wrong_form_is_far_off(monkeypatch):
    tested, one = core("transformer", "sdpa")
    form = tested.forms["sdpa"]
    monkeypatch.setattr(form, "attend", lambda self, q, k, v, mask: v + 0 * q)
    assert relative_error(tested, one, seed=0) > 0.1
    monkeypatch.undo()
    assert relative_error(tested, one, seed=0) < 1e-5


@pytest.mark.filterwarnings("ignore")
def test_a_form_of_another_package_is_compared_with_the_same_parameters():
    tested, one = core("transformer", "torch")
    assert 1e-9 < relative_error(tested, one, seed=1) < 1e-5
