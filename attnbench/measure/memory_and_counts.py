"""What is measured of a case besides its time: memory, counts, and the error of its output."""

import gc
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from attnbench.attention.card import Card
from attnbench.devices.finding import find
from attnbench.devices.protocol import Device, ValuesAndNotes
from attnbench.measure.built import load_compiler
from attnbench.measure.cards import Unmeasured
from attnbench.measure.subject import SUBJECTS, Subject, subject_of
from attnbench.records import Case, Level, Workload
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


def relative_error(card: Card, case: Case, seed: int) -> float | None:
    """‖y − y₆₄‖ / ‖y₆₄‖ of `case.slice`, or None if the form cannot run at that length or deviates
    from the equations.

    y₆₄ is the output of the form `eager` (which the contract's checks compare with the reference)
    in float64, with the same rounded parameters, input and random draws: the error is that of the
    arithmetic, including discrete choices that rounding changes. In decode the end of the sequence
    is computed step by step.
    """
    w = case.slice.workload
    short = replace(w, mode=Workload.mode)
    config = card.configure(dict(case.options))
    if card.refusal(case.form, config, short) or card.refusal("eager", config, short):
        return None
    form = card.forms[case.form]
    if form.deviation:
        return None
    dtype, device = getattr(torch, w.dtype), find(w.device).torch_name
    torch.manual_seed(seed)
    module, exact = form(config, short), card.forms["eager"](config, short)
    module, exact = module.to(device, dtype).eval(), exact.to(device, dtype).eval()
    exact.load_state_dict(module.state_dict())
    exact.double()
    x = torch.randn(1, short.seq_len, w.width).to(device, dtype)
    with torch.no_grad():
        torch.manual_seed(seed)
        y = SUBJECTS[w.mode].sequence(module, x).double()
        torch.manual_seed(seed)
        expected = exact(x.double())
    return float((y - expected).norm() / expected.norm())
