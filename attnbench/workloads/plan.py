"""Mechanisms × workloads to cases, each with its FLOPs, predictions, and why it cannot run.

This runs the cards' code: only `workloads.reader`, in a process of its own, imports it.
"""

from collections.abc import Iterator
from dataclasses import fields
from fnmatch import fnmatchcase
from typing import Any

from attnbench.analysis import predict
from attnbench.contract import Card
from attnbench.errors import UnknownMechanism, UnknownOption, UsageError
from attnbench.model import attention_sets, is_reversible, shell_flops, shell_parameters
from attnbench.model import refusal as shell_refusal
from attnbench.records import (
    ITEM_BYTES,
    CardFacts,
    Case,
    Causality,
    Level,
    Mode,
    Planned,
    Request,
    Selection,
    Shell,
    Workload,
)
from attnbench.registry import card, unknown
from attnbench.workloads.presets import preset

SAVED = 13  # tensors [B, N, D] that one layer keeps for backward beside the core's own
ALIVE = 6  # and that are alive at once without gradients


def plan(chosen: Selection, request: Request) -> Iterator[Planned]:
    """The cases of a selection, in the order of modes and lengths.

    Raises `UnknownMechanism`, `UnknownOption` or `UsageError`.
    """
    for mode in request.modes:
        for n in request.lengths:
            yield from planned(chosen, request, mode, n)


def facts(name: str) -> CardFacts:
    """A card without its code."""
    its = card(name)
    defaults = {f.name: f.default for f in fields(its.config)}
    return CardFacts(
        mechanism=name,
        title=its.paper.title,
        authors=its.paper.authors,
        year=its.paper.year,
        source=its.paper.source,
        family=its.family,
        causality=its.causality,
        complexity=its.cost.printed,
        time_exponent=its.cost.time,
        memory_exponent=its.cost.memory,
        forms=tuple(its.forms),
        options=defaults,
    )


def planned(chosen: Selection, request: Request, mode: Mode, seq_len: int) -> Iterator[Planned]:
    """The cases of one mechanism at one length: one for each form that was asked for."""
    its = card(chosen.name)
    workload = make_workload(its, request, mode, seq_len)
    try:
        given = dict(preset(request.preset).options(chosen.name))
        config = its.configure(given | dict(chosen.options))
    except UnknownOption as error:
        raise UnknownOption(f"{chosen.name}: {error}") from error
    default = its.config()
    options = tuple(
        (f.name, getattr(config, f.name))
        for f in sorted(fields(config), key=lambda f: f.name)
        if getattr(config, f.name) != getattr(default, f.name)
    )
    for form in forms(its, chosen, config, workload):
        case = Case(mechanism=chosen.name, form=form, options=options, workload=workload)
        yield describe(its, case, config, request)


def forms(its: Card, chosen: Selection, config: Any, workload: Workload) -> tuple[str, ...]:
    """The forms that a selection stands for; without one, the default of the workload."""
    if chosen.form is None:
        form = its.default(config, workload)
        if form not in its.forms:
            text = unknown(str(form), tuple(its.forms), f"default form of {chosen.name}")
            raise UnknownMechanism(text)
        refused = its.refusal(form, config, workload) and form != "eager"
        return ("eager",) if refused else (form,)
    matches = tuple(form for form in its.forms if fnmatchcase(form, chosen.form))
    if not matches:
        text = unknown(chosen.form, tuple(its.forms), f"form of {chosen.name}")
        raise UnknownMechanism(text)
    return matches


def make_workload(its: Card, request: Request, mode: Mode, seq_len: int) -> Workload:
    """The workload of one length: batch = max(1, c // N)."""
    shell = Shell(
        layers=request.layers,
        dropout=request.dropout,
        share_layers=request.share_layers,
        reversible=request.reversible,
    )
    return Workload(
        batch=max(1, request.tokens // seq_len),
        seq_len=seq_len,
        width=request.width,
        heads=request.heads,
        level=request.level,
        mode=mode,
        dtype=request.dtype,
        device=request.device,
        causal=request.causal or its.causality is Causality.ALWAYS,
        padding=request.padding,
        shell=shell if request.level is Level.MODEL else None,
    )


def describe(its: Card, case: Case, config: Any, request: Request) -> Planned:
    """A case with its work, its predictions, and why it cannot run."""
    w, form = case.workload, its.forms[case.form]
    refusal = its.refusal(case.form, config, w) or ""
    if w.width % w.heads:
        raise UsageError(f"width {w.width} is not divisible by {w.heads} heads")
    model = w.level is Level.MODEL
    if model:
        refusal = refusal or shell_refusal(its, case.form, w) or ""
    layers, sets = (w.shell.layers, attention_sets(its, w.shell)) if model else (1, 1)
    kept = 1 if model and is_reversible(its, w.shell) else layers
    flops = form.flops(config, w)
    projections = 0 if w.level is Level.CORE else layers * flops.projections
    core, shell = layers * flops.core, shell_flops(w) if model else 0
    parameters = sets * its.parameters(config, w) + (shell_parameters(w) if model else 0)
    total = projections + core + shell
    elements = form.elements(config, w)
    counts = {"parameters": parameters, "FLOPs": total, "elements": elements}
    if wrong := [what for what, count in counts.items() if type(count) is not int or count < 0]:
        raise UnknownMechanism(
            f"{case.mechanism!r}: its card gives {counts[wrong[0]]!r} as {wrong[0]};"
            " it takes a whole number of at least 0"
        )
    training = w.mode is Mode.TRAINING
    return Planned(
        case=case,
        parameters=parameters,
        projection_flops=projections,
        core_flops=core,
        shell_flops=shell,
        predicted_bytes=predicted_bytes(elements, parameters, w, kept),
        predicted_s=predict.first_guess(total, training, w.device, request.settings.threads),
        refusal=refusal,
    )


def predicted_bytes(elements: int, parameters: int, w: Workload, layers: int) -> int:
    """Allocated peak: parameters, optimiser, embedding, and what each of the layers keeps."""
    item = ITEM_BYTES[w.dtype]
    tokens = w.tokens * w.width
    table = w.shell.vocabulary * w.width if w.shell else 0
    if w.mode is Mode.INFERENCE:
        return item * (parameters + table + ALIVE * tokens + elements)
    return item * (4 * parameters + table + layers * (SAVED * tokens + 2 * elements))
