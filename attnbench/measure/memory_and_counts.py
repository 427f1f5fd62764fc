"""What is measured of a case besides its time: memory, counts, and the error of its output."""

from functools import partial
from typing import Any

from attnbench.attention.card import Card
from attnbench.devices.protocol import Device, ValuesAndNotes
from attnbench.measure import compiling
from attnbench.measure.building import subject_of
from attnbench.measure.cards import package
from attnbench.measure.digits import relative_error
from attnbench.measure.samples import check, counted, garbage, without_none
from attnbench.records import Case, Level


def measure_memory_and_counts(
    card: Card,
    config: Any,
    case: Case,
    device: Device,
    seed: int,
    *,
    checked: bool,
    filled: bool,
    error: bool,
) -> ValuesAndNotes:
    """Peaks, saved bytes and counts of one iteration, and notes; with `error`, also the numerical
    error of the output.

    With `checked`, output and gradients are checked first, and the values include parameters and
    forward FLOPs of one layer, and garbage. Raises `Unmeasured`.
    """
    values, form = dict[str, float](), card.forms[case.form]
    if getattr(form, "compiles", False):
        compiling.load(device)
    if checked:
        subject = subject_of(card, case, seed)
        check(subject)
        values["garbage"] = garbage(subject)
        declare = getattr(form, subject.declares)
        values["parameters"] = sum(p.numel() for p in subject.parameters)
        if flops := declare(config, case.workload):
            outside = 0 if case.workload.level is Level.CORE else flops.projections
            values["flops"] = flops.core + outside
        del subject
    build = partial(subject_of, card, seed=seed, filled=filled)
    peaks, notes = device.profile_memory(lambda case: build(case=case), case)
    values |= peaks
    # cards and forms of older trees lack these fields (they declare everything) or name them so
    declared = getattr(card, "declared", True)
    if not declared or getattr(form, "flops_estimated", getattr(form, "counted", False)):
        values |= counted(subject_of(card, case, seed))
    if declared and error:
        values |= without_none(error=relative_error(card, case, seed))
    if computed_by := package(form):
        notes["package"] = computed_by
    if deviation := getattr(form, "deviation", getattr(form, "departs", "")):
        notes["departs"] = deviation
    return values, notes
