"""Every form of the package as it is measured: finite, in the type asked for, with its digits."""

from itertools import product

import pytest

from attnbench.attention.checks.trial import causal_values
from attnbench.devices.counting import Counter
from attnbench.measuring.memory_and_counts import relative_error
from attnbench.measuring.subject import subject_of
from attnbench.mechanisms.catalogue.presets import preset
from attnbench.mechanisms.catalogue.registry import card, names
from attnbench.records import PASSES, Level, Mode
from tests.measuring.cases import case

# types in which a form may compute, by that of its case
ALLOWED = {
    "float32": {"float32", "float64"},
    "bfloat16": {"bfloat16", "float32", "float64"},
    "float16": {"float16", "float32", "float64"},
}


# of all levels and number types; the product is long
USUAL = ((Level.MODEL, "float32"), (Level.ATTENTION, "bfloat16"))


def cases(name, mode, usual):
    """Each form of this package at two levels, and others as a layer, in each number type."""
    tested, options = card(name), tuple(preset("mind-classification").options(name).items())
    for form, level, dtype in product(tested.forms, (Level.MODEL, Level.ATTENTION), ALLOWED):
        if usual and (level, dtype) not in USUAL:
            continue
        if form == "compiled" or tested.forms[form].compiles:  # takes minutes
            continue
        if level is Level.MODEL and not (form in tested.own_forms and dtype == "float32"):
            continue
        causal = causal_values(tested.causality)[-1]
        sizes = {"level": level, "mode": mode, "causal": causal, "seq_len": 33, "dtype": dtype}
        yield case(name, form, options, **sizes)


def wrong(tested, one):
    """What is wrong with an iteration, for forms of other packages only in its types."""
    subject, w = subject_of(tested, one, seed=0), one.workload
    with Counter() as counter:
        output = subject.iteration()(lambda phase: None)
    types = set(filter(None, counter.notes.get("number_types", "").split(", ")))
    # Fourier transforms give complex numbers
    if not types <= ALLOWED[w.dtype] or (types and w.dtype not in types):
        yield f"computes in {types}"
    if one.form not in tested.own_forms:
        return
    if found := subject.check(output):
        yield found
    if w.mode is Mode.TRAINING:
        gradients = [p.grad for p in subject.parameters]
        # one segment compresses nothing
        if None in gradients and one.mechanism != "compressive_transformer":
            yield "a parameter has no gradient"
        if not all(gradient.isfinite().all() for gradient in gradients if gradient is not None):
            yield "a gradient is not finite"


@pytest.mark.parametrize("usual", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize("mode", PASSES)
@pytest.mark.parametrize("name", names())
def test_an_iteration_of_every_form_is_as_asked(name, mode, usual):
    tested, found, ran = card(name), {}, 0
    for one in cases(name, mode, usual):
        config = tested.configure(dict(one.options))
        if tested.refusal(one.form, config, one.workload) is None:
            ran += 1
            if failures := [*wrong(tested, one)]:
                found[str(one)] = failures
    assert not found
    assert ran


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
