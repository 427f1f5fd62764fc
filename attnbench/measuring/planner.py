"""Expands mechanisms × workloads into cases with counts, and why they cannot run.

This runs the code of cards: only `measuring.reader`, in a separate process, imports it.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import fields
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

from attnbench.attention import Attention, Card, Flops
from attnbench.attention.classifier import attention_sets, shell_flops, shell_parameters
from attnbench.devices import find
from attnbench.errors import UnknownMechanism, UnknownOption, UsageError
from attnbench.measuring.cards import origin_of
from attnbench.mechanisms import catalogue
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
    Sizes,
    Workload,
    modes,
)
from attnbench.records.selection import layers

SAVED = 13  # tensors [B, N, D] that one layer keeps for backward, without the core's
ALIVE = 6  # such tensors alive at once in inference
SCORES = 4  # a bound: for each key and head, a step has the logit, its exponential, copies of both
PROMPT = 2.0  # how many times longer a prompt takes than its FLOPs at the peak rate


def plan(selection: Selection, request: Request) -> Iterator[Planned]:
    """The cases of a selection, in the order of sizes, modes and lengths.

    Raises `UnknownMechanism`, `UnknownOption` or `UsageError`.
    """
    mechanism = catalogue.card(selection.name)
    try:
        preset_options = dict(
            catalogue.preset(request.preset).options(selection.name.partition(":")[0])
        )
        config = mechanism.configure(preset_options | dict(selection.options))
    except UnknownOption as error:
        raise UnknownOption(f"{selection.name}: {error}") from error
    options = mechanism.options(config)
    combinations = product(request.sizes, request.modes, request.lengths)
    # a mode without steps has the same workload for each --step
    for w in dict.fromkeys(make_workload(mechanism, request, *each) for each in combinations):
        for form in matching_forms(mechanism, selection, config, w):
            case = Case(mechanism=selection.name, form=form, options=options, workload=w)
            yield plan_case(mechanism, case, config, request)


def facts(name: str) -> CardFacts:
    """The facts of a card, without its code."""
    mechanism = catalogue.card(name)
    defaults = mechanism.config()
    return CardFacts(
        mechanism=name,
        title=mechanism.paper.title,
        authors=mechanism.paper.authors,
        year=mechanism.paper.year,
        source=mechanism.paper.source,
        family=mechanism.family,
        causality=mechanism.causality,
        complexity=mechanism.cost.printed,
        forms=tuple(mechanism.forms),
        options={f.name: getattr(defaults, f.name) for f in fields(defaults)},
        symbols=mechanism.symbols,
        code=digest_of_code(name),
    )


def digest_of_code(name: str) -> str:
    """A digest of the files of a mechanism, or of the layers of a stack; empty if unreadable."""
    digest = hashlib.sha256()
    for part in dict.fromkeys(layer.name for layer in layers(name)) or [name]:
        file, _, last = part.rpartition(":")
        try:
            if file.endswith(".py") or last.endswith(".py"):
                path = Path(file if file.endswith(".py") else last)
            else:
                path = origin_of(part)
            digest.update(path.read_bytes())
        except (OSError, StopIteration):
            return ""
    return digest.hexdigest()[:16]


def matching_forms(
    card: Card, selection: Selection, config: Any, workload: Workload
) -> tuple[str, ...]:
    """The forms that a selection means; without one, the default form of the workload.

    card:      of the mechanism
    selection: what the user asks for, with a form, a pattern of forms, or none
    config:    the options of the mechanism
    workload:  what decides the default form
    """
    pattern = selection.form
    kind = f"form of {selection.name}"
    if pattern is None:
        pattern = str(card.usual_form(config, workload))
        kind = f"default {kind}"
    matches = tuple(form for form in card.forms if fnmatchcase(form, pattern))
    if not matches:
        raise UnknownMechanism(catalogue.unknown_name_message(pattern, tuple(card.forms), kind))
    return matches


def make_workload(card: Card, request: Request, sizes: Sizes, mode: Mode, seq_len: int) -> Workload:
    """The workload of one length: without a fixed batch, B = max(1, c // N), of a step 1.

    Decoding is always causal.

    card:    of the mechanism, which may always be causal
    request: what holds for the whole sweep
    sizes:   batch, width, heads, number type and step
    mode:    what an iteration does
    seq_len: N, in tokens
    """
    steps = modes.find(mode).steps
    shell = Shell(layers=request.layers, dropout=request.dropout)
    return Workload(
        batch=sizes.batch or (1 if steps else max(1, request.tokens // seq_len)),
        seq_len=seq_len,
        width=sizes.width,
        heads=sizes.heads,
        level=request.level,
        mode=mode,
        dtype=sizes.dtype,
        device=request.device,
        causal=steps or request.causal or card.causality is Causality.ALWAYS,
        padding=request.padding,
        shell=shell if request.level is Level.MODEL else None,
        step=sizes.step if steps else 1,
    )


def plan_case(card: Card, case: Case, config: Any, request: Request) -> Planned:
    """A case with FLOPs, parameters, bytes, and why it cannot run.

    card:    of the mechanism
    case:    with its form and workload
    config:  the options of the mechanism
    request: which says whether states are filled
    """
    w = case.workload
    form = card.forms[case.form]
    refusal = card.refusal(case.form, config, w) or ""
    sized = config.sized(w)
    if w.width % w.heads:
        raise UsageError(f"width {w.width} is not divisible by {w.heads} heads")
    period = len(card.layers) or 1
    layers = period
    sets = 1
    shell = 0
    parameters = 0
    if w.shell is not None:
        layers = w.shell.layers
        sets = attention_sets(card, w.shell)
        shell = shell_flops(w)
        parameters = shell_parameters(w)
    flops = prefill = form.flops(config, sized)
    if w.steps:
        flops = step_flops(form, config, sized)
    projections = 0 if w.level is Level.CORE else layers // period * flops.projections
    core = layers // period * flops.core
    parameters += sets * card.parameters(config, sized)
    elements = form.elements(config, sized)
    state = form.state_elements(config, sized) if w.steps and not refusal else 0
    prompt_flops = prefill.projections + prefill.core if w.steps else 0
    filled = not refusal and is_filled(w, request, prompt_flops)
    moved_numbers = (
        state + w.outputs * w.width if w.steps else 2 * layers * (elements + w.tokens * w.width)
    )
    needed_bytes = predicted_bytes(elements + state, parameters, w, layers)
    if filled:
        keys = min(w.tokens, state)  # a small state has no part for each token
        needed_bytes = ITEM_BYTES[w.dtype] * (
            parameters + state + SCORES * sized.heads * w.step * keys
        )
    return Planned(
        case=case,
        parameters=parameters,
        projection_flops=projections,
        core_flops=core,
        shell_flops=shell,
        predicted_bytes=needed_bytes,
        prefill_flops=0 if filled else prompt_flops,
        moved_bytes=ITEM_BYTES[w.dtype] * (moved_numbers + parameters),
        refusal=refusal,
        compiles=form.compiles,
        tunes=form.tunes,
        filled=filled,
        layers=tuple(layer.series(case.form, w) for layer in card.layers),
        own=catalogue.is_built_in(case.mechanism) and not form.package,
        declared=card.declared,
    )


def is_filled(w: Workload, request: Request, prompt_flops: int) -> bool:
    """Whether a state is filled: as requested, or where a prompt takes longer than the steps."""
    if not w.steps or w.seq_len <= w.step:
        return False
    if request.fill is not None:
        return request.fill
    settings = request.settings
    rate = find(w.device).flops_per_s(settings.threads) / PROMPT
    return prompt_flops / rate > settings.sample_s + settings.warmup_s


def step_flops(form: type[Attention], config: Any, w: Workload) -> Flops:
    """FLOPs of the step; where the form declares none, its tokens' share of the prefill."""
    if (declared := form.step_flops(config, w)) is not None:
        return declared
    prefill = form.flops(config, w)
    return Flops(*(part * w.step // w.seq_len for part in (prefill.projections, prefill.core)))


def predicted_bytes(elements: int, parameters: int, w: Workload, layers: int) -> int:
    """Allocated peak: parameters, optimiser state, embedding, and what the layers keep.

    elements:   numbers that the core of one layer keeps at once
    parameters: of all layers
    w:          the workload
    layers:     how many layers there are
    """
    item = ITEM_BYTES[w.dtype]
    tokens = w.tokens * w.width
    table = w.shell.vocabulary * w.width if w.shell else 0
    activations = (
        layers * (SAVED * tokens + 2 * elements) if w.trains else ALIVE * tokens + elements
    )
    return item * (modes.find(w.mode).copies * parameters + table + activations)
