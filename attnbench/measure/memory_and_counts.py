"""What is measured of a case besides its time: memory, counts, and the error of its output."""

import gc
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from attnbench.attention.card import Card
from attnbench.devices.protocol import Device, ValuesAndNotes
from attnbench.measure.built import load_compiler
from attnbench.measure.cards import Unmeasured
from attnbench.measure.digits import relative_error
from attnbench.measure.subject import Subject, subject_of
from attnbench.records import Case, Level
from attnbench.verify.flops import counted_flops


def measure_memory_and_counts(
    card: Card,
    config: Any,
    case: Case,
    device: Device,
    seed: int,
    *,
    checked: bool = False,
    filled: bool = False,
    error: bool = False,
) -> ValuesAndNotes:
    """Peaks, saved bytes and counts of one iteration, and notes; with `error`, also the numerical
    error of the output.

    With `checked`, output and gradients are checked first, and the values include parameters and
    forward FLOPs of one layer, and garbage. Raises `Unmeasured`.
    """
    values, form = dict[str, float](), card.forms[case.form]
    if form.compiles:
        load_compiler(device)
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
    if not card.declared or form.flops_estimated:
        values |= counted(subject_of(card, case, seed))
    if card.declared and error and (found := relative_error(card, case, seed)) is not None:
        values["error"] = found
    if form.package:
        notes["package"] = form.package
        with suppress(PackageNotFoundError):  # importable, but without metadata of an installer
            notes["package"] += f" {version(form.package)}"
    if form.deviation:
        notes["departs"] = form.deviation
    return values, notes


def check(subject: Subject) -> None:
    """Check the output and the gradients of one iteration. Raises `Unmeasured`."""
    subject.prefill()
    wrong = subject.check(subject.iteration()(lambda phase: None))
    tensors = (*subject.parameters, *subject.inputs)
    gradients = [t.grad for t in tensors if t.grad is not None]
    if not wrong and not all(gradient.isfinite().all() for gradient in gradients):
        wrong = "a gradient is not finite"
    subject.clear()
    if wrong:
        raise Unmeasured("failed", wrong)


def garbage(subject: Subject) -> int:
    """How many objects an iteration after the first leaves in cycles, to the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        subject.iteration()(lambda phase: None)
        subject.clear()
        return gc.collect()
    finally:
        gc.enable()


def counted(subject: Subject) -> dict[str, float]:
    """Parameters and forward FLOPs of a module that does not declare them."""
    is_core = subject.case.workload.level is Level.CORE
    call = subject.module.attend if is_core else subject.module
    flops = counted_flops(subject.module, *subject.inputs, subject.mask, call=call)
    return {"parameters": sum(p.numel() for p in subject.parameters), "flops": flops}
