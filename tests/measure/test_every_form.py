"""Every form of the package as it is measured: finite, and in the type asked for."""

from dataclasses import replace
from itertools import product

import pytest

from attnbench.catalogue.registry import card, names
from attnbench.devices.counting import Counter
from attnbench.measure.subject import subject_of
from attnbench.records import PASSES, Causality, Level, Mode
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
    """Each form of this package as a layer, in float32, and the usual one at each level; all forms
    in narrow types, as a layer.

    Without those that are compiled, which takes minutes.
    """
    tested, options = card(name), tuple(preset("mind-classification").options(name).items())
    for form, level, causal in product(tested.forms, Level, causal_values(tested.causality)):
        if form == "compiled" or tested.forms[form].compiles:
            continue
        one = case(name, form, options, level=level, mode=mode, causal=causal, seq_len=33)
        usual = form == tested.default_form(tested.configure(dict(options)), one.workload)
        if form in tested.own_forms and (usual or level is Level.ATTENTION):
            yield one
        if level is Level.ATTENTION and causal == (tested.causality is Causality.ALWAYS):
            others = ALLOWED.keys() - {"float32"} if form in tested.own_forms else ALLOWED
            yield from (replace(one, workload=replace(one.workload, dtype=d)) for d in others)


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
