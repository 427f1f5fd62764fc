"""Every form of the package as it is measured: finite, and in the type asked for."""

from itertools import product

import pytest

from attnbench.catalogue.registry import card, names
from attnbench.devices.counting import Counter
from attnbench.measure.subject import subject_of
from attnbench.records import PASSES, Level, Mode
from attnbench.verify.trial import causal_values
from attnbench.workloads.presets import preset
from tests.measure.cases import case

# types in which a form may compute, by that of its case
ALLOWED = {
    "float32": {"float32", "float64"},
    "bfloat16": {"bfloat16", "float32", "float64"},
    "float16": {"float16", "float32", "float64"},
}


def cases(name, mode):
    """Each form of this package at two levels, and others as a layer, in each number type."""
    tested, options = card(name), tuple(preset("mind-classification").options(name).items())
    for form, level, dtype in product(tested.forms, (Level.MODEL, Level.ATTENTION), ALLOWED):
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


@pytest.mark.parametrize("mode", PASSES)
@pytest.mark.parametrize("name", names())
def test_an_iteration_of_every_form_is_as_asked(name, mode):
    tested, found, ran = card(name), {}, 0
    for one in cases(name, mode):
        config = tested.configure(dict(one.options))
        if tested.refusal(one.form, config, one.workload) is None:
            ran += 1
            if failures := [*wrong(tested, one)]:
                found[str(one)] = failures
    assert not found
    assert ran
