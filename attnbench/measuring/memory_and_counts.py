"""What is measured of a case besides its time: memory, counts, and the error of its output."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from attnbench.attention import Card
from attnbench.attention.checks.checks import continued
from attnbench.attention.checks.flops import counted_flops
from attnbench.devices import find
from attnbench.devices.protocol import Device, ValuesAndNotes
from attnbench.measuring.built import BuiltCase
from attnbench.measuring.causality import is_of_others
from attnbench.measuring.server import Unmeasured
from attnbench.measuring.subject import Subject, subject_of
from attnbench.measuring.uncounted import Arrays, Threads, grown_bytes, missed_text
from attnbench.records import Case, Level, Workload, messages
from attnbench.records.notes import Note

STEPS = 16  # at most, for a numerical error: in float64 each reads twice the bytes


def measure_memory_and_counts(
    card: Card,
    config: Any,
    case: Case,
    device: Device,
    seed: int,
    *,
    checked: bool = False,
    filled: bool = False,
) -> ValuesAndNotes:
    """Peaks, saved bytes, counts and the numerical error of one iteration, and notes.

    Where these are checked, the values include parameters and forward FLOPs of one layer, and
    garbage. Raises `Unmeasured`.

    card:    of the mechanism
    config:  its options
    case:    what is measured
    device:  where it runs
    seed:    of parameters and inputs
    checked: output and gradients are checked, in place of the numerical error
    filled:  the state of a step is random, and follows no prompt
    """
    values = dict[str, float]()
    form = card.forms[case.form]
    if checked:
        built = BuiltCase(card, case, seed, device, messages.Build(**messages.of_case(case)))
        values["garbage"] = check_gradients(built)
        subject = built.subject
        declare = getattr(form, subject.declares)
        values["parameters"] = sum(p.numel() for p in subject.parameters)
        if flops := declare(config, case.workload):
            outside = 0 if case.workload.level is Level.CORE else flops.projections
            values["flops"] = flops.core + outside
        del built, subject
    elif form.compiles:
        torch.compiler.reset()  # what was compiled for other cases
        subject_of(card, case, seed).iteration()(lambda phase: None)
    build = partial(subject_of, card, seed=seed, filled=filled)
    # what is compiled runs in threads of torch's, and a GPU's peaks are those of its own memory
    if is_of_others(card, case) and not (form.compiles or device.gpus):
        peaks, notes = with_uncounted(device, build, case)
    else:
        peaks, notes = device.profile_memory(lambda case: build(case=case), case)
    values |= peaks
    if not card.declared or form.flops_estimated:
        subject = subject_of(card, case, seed)
        call = subject.module.attend if case.workload.level is Level.CORE else subject.module
        values["parameters"] = sum(p.numel() for p in subject.parameters)
        values["flops"] = counted_flops(subject.module, *subject.inputs, subject.mask, call=call)
    error = relative_error(card, case, seed) if card.declared and not checked else None
    if error is not None:
        values["error"] = error
    if form.package:
        notes[Note.PACKAGE] = form.package
        with suppress(PackageNotFoundError):  # importable, but without metadata of an installer
            notes[Note.PACKAGE] += f" {version(form.package)}"
    if form.deviation:
        notes[Note.DEPARTS] = form.deviation
    return values, notes


def with_uncounted(device: Device, build: Callable[..., Subject], case: Case) -> ValuesAndNotes:
    """Peaks and notes of one iteration, with what these peaks miss, if anything; `build` makes its
    subject.

    A further iteration shows the arrays of numpy, and another one by how much the process grows.
    """
    threads = Threads()
    arrays = Arrays()
    subjects = list[Subject]()

    def build_and_keep(case: Case) -> Subject:
        subjects.append(build(case=case))
        return subjects[-1]

    with threads.watch():
        peaks, notes = device.profile_memory(build_and_keep, case)
    subject = subjects[-1]
    arrays.run(subject.iteration())
    subject.clear()

    def iterate() -> None:
        subject.iteration()(lambda phase: None)
        subject.clear()

    grown = grown_bytes(iterate, peaks["allocated_delta_bytes"])
    missed = missed_text(arrays, threads, grown)
    return peaks, {**notes, Note.UNCOUNTED: missed} if missed else notes


def check_gradients(built: BuiltCase) -> float:
    """Check the gradients of one iteration; the output was checked. Raises `Unmeasured`.

    Returns how many objects it leaves in cycles, to the garbage collector.
    """
    built.lap(1)
    gradients = [t.grad for t in (*built.subject.parameters, *built.subject.inputs)]
    if not all(gradient.isfinite().all() for gradient in gradients if gradient is not None):
        raise Unmeasured("failed", "a gradient is not finite")
    return built.finish()[0]["garbage"]


def relative_error(card: Card, case: Case, seed: int) -> float | None:
    """‖y − y₆₄‖ / ‖y₆₄‖ of `case.slice`, or None if the form cannot run at that length or deviates
    from the equations.

    y₆₄ is the output of the form `eager` (which the contract's checks compare with the reference)
    in float64, with the same rounded parameters, input and random draws: the error is of the
    arithmetic, including discrete choices that rounding changes. In decode the end of the sequence
    is computed step by step.
    """
    w = case.slice.workload
    form = card.forms[case.form]
    short = replace(w, mode=Workload.mode)
    config = card.configure(dict(case.options))
    own_card = card.mechanism or card
    refused = card.refusal(case.form, config, short) or own_card.refusal("eager", config, short)
    if refused or form.deviation:
        return None
    dtype = getattr(torch, w.dtype)
    device = find(w.device).torch_name
    torch.manual_seed(seed)
    sized = config.sized(short)
    module = form(config, sized)
    exact = card.eager(config, sized)
    module = module.to(device, dtype).eval()
    exact = exact.to(device, dtype).eval()
    exact.load_state_dict(module.state_dict())
    exact.double()
    x = torch.randn(1, short.seq_len, w.width).to(device, dtype)
    with torch.no_grad():
        torch.manual_seed(seed)
        prompt = max(short.seq_len // 2, short.seq_len - STEPS)
        y = (continued(module, x, prompt, (w.step,))[0] if w.steps else module(x)).double()
        torch.manual_seed(seed)
        expected = exact(x.double())
    return float((y - expected).norm() / expected.norm())
