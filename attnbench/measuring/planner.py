"""Expands mechanisms × workloads into cases with counts, and why they cannot run.

This runs the code of cards: only `measuring.reader`, in a separate process, imports it.
"""

from collections.abc import Iterator
from dataclasses import fields
from fnmatch import fnmatchcase
from itertools import product
from typing import Any

from attnbench.attention.card import Card
from attnbench.attention.classifier import attention_sets, shell_flops, shell_parameters
from attnbench.attention.contract import Attention, Flops
from attnbench.devices.finding import find
from attnbench.errors import UnknownMechanism, UnknownOption, UsageError
from attnbench.mechanisms.catalogue.presets import preset
from attnbench.mechanisms.catalogue.registry import card, is_built_in, unknown_name_message
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

SAVED = 13  # tensors [B, N, D] that one layer keeps for backward, without the core's
ALIVE = 6  # such tensors alive at once in inference
SCORES = 4  # a bound: for each key and head, a step has the logit, its exponential, copies of both
PROMPT = 2.0  # how many times longer a prompt takes than its FLOPs at the peak rate


def plan(chosen: Selection, request: Request) -> Iterator[Planned]:
    """The cases of a selection, in the order of sizes, modes and lengths.

    Raises `UnknownMechanism`, `UnknownOption` or `UsageError`.
    """
    mechanism = card(chosen.name)
    try:
        preset_options = dict(preset(request.preset).options(chosen.name.partition(":")[0]))
        config = mechanism.configure(preset_options | dict(chosen.options))
    except UnknownOption as error:
        raise UnknownOption(f"{chosen.name}: {error}") from error
    options = mechanism.options(config)
    every = product(request.sizes, request.modes, request.lengths)
    # a mode without steps has the same workload for each --step
    for w in dict.fromkeys(make_workload(mechanism, request, *each) for each in every):
        for form in forms(mechanism, chosen, config, w):
            case = Case(mechanism=chosen.name, form=form, options=options, workload=w)
            yield plan_case(mechanism, case, config, request)


def facts(name: str) -> CardFacts:
    """The facts of a card, without its code."""
    mechanism = card(name)
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
    )


def forms(card: Card, chosen: Selection, config: Any, workload: Workload) -> tuple[str, ...]:
    """The forms that a selection means; without one, the default form of the workload."""
    wanted = chosen.form
    kind = f"form of {chosen.name}"
    if wanted is None:
        wanted = str(card.usual_form(config, workload))
        kind = f"default {kind}"
    matches = tuple(form for form in card.forms if fnmatchcase(form, wanted))
    if not matches:
        raise UnknownMechanism(unknown_name_message(wanted, tuple(card.forms), kind))
    return matches


def make_workload(card: Card, request: Request, sizes: Sizes, mode: Mode, seq_len: int) -> Workload:
    """The workload of one length: without a fixed batch, B = max(1, c // N), of a step 1.

    Decoding is always causal.
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
    """A case with FLOPs, parameters, bytes, and why it cannot run."""
    w = case.workload
    form = card.forms[case.form]
    refusal = card.refusal(case.form, config, w) or ""
    own = config.sized(w)
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
    flops = prefill = form.flops(config, own)
    if w.steps:
        flops = step_flops(form, config, own)
    projections = 0 if w.level is Level.CORE else layers // period * flops.projections
    core = layers // period * flops.core
    parameters += sets * card.parameters(config, own)
    elements = form.elements(config, own)
    state = form.state_elements(config, own) if w.steps and not refusal else 0
    before = prefill.projections + prefill.core if w.steps else 0
    filled = not refusal and fills(w, request, before)
    moved = state + w.outputs * w.width if w.steps else 2 * layers * (elements + w.tokens * w.width)
    needed = predicted_bytes(elements + state, parameters, w, layers)
    if filled:
        keys = min(w.tokens, state)  # a small state has no part for each token
        needed = ITEM_BYTES[w.dtype] * (parameters + state + SCORES * own.heads * w.step * keys)
    return Planned(
        case=case,
        parameters=parameters,
        projection_flops=projections,
        core_flops=core,
        shell_flops=shell,
        predicted_bytes=needed,
        prefill_flops=0 if filled else before,
        moved_bytes=ITEM_BYTES[w.dtype] * (moved + parameters),
        refusal=refusal,
        compiles=form.compiles,
        tunes=form.tunes,
        filled=filled,
        layers=tuple(layer.series(case.form, w) for layer in card.layers),
        own=is_built_in(case.mechanism) and not form.package,
        declared=card.declared,
    )


def fills(w: Workload, request: Request, prompt_flops: int) -> bool:
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
    whole = form.flops(config, w)
    return Flops(*(part * w.step // w.seq_len for part in (whole.projections, whole.core)))


def predicted_bytes(elements: int, parameters: int, w: Workload, layers: int) -> int:
    """Allocated peak: parameters, optimiser state, embedding, and what the layers keep."""
    item = ITEM_BYTES[w.dtype]
    tokens = w.tokens * w.width
    table = w.shell.vocabulary * w.width if w.shell else 0
    kept = layers * (SAVED * tokens + 2 * elements) if w.trains else ALIVE * tokens + elements
    return item * (modes.find(w.mode).copies * parameters + table + kept)
