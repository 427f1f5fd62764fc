"""Synthetic sweeps: seeded random numbers in the shape of a real journal."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from attnbench.records import (
    CardFacts,
    Case,
    Causality,
    Cause,
    Environment,
    Family,
    Level,
    Mode,
    Outcome,
    Part,
    Planned,
    Request,
    Run,
    Sample,
    Settings,
    Shell,
    Sweep,
    Workload,
)

LENGTHS = tuple(2**power for power in range(7, 17))
TOKENS = 8192
WIDTH = 256

# seconds of a token at length N: a constant part and a part that grows with N
COSTS: Mapping[str, tuple[float, float]] = {
    "transformer": (1.6e-6, 1.5e-9),
    "fastformer": (1.1e-6, 0.0),
    "linformer": (1.5e-6, 0.0),
    "longformer": (4e-6, 0.0),
    "bigbird": (6e-6, 0.0),
    "linear_transformer": (1.7e-6, 0.0),
    "poolingformer": (5e-6, 0.0),
}
EXPONENTS: Mapping[str, float] = {"transformer": 2.0}


def environment(**changes: object) -> Environment:
    """A plausible machine."""
    machine = Environment(
        attnbench="0.1.0",
        python="3.11.9",
        torch="2.13.0",
        system="Linux 6.1",
        processor="Imaginary CPU @ 2.60 GHz",
        cores=2,
        threads=2,
        memory_bytes=8 << 30,
        device="cpu",
        matmul_flops=9.5e10,
        copy_bytes=1.1e10,
        load=0.12,
    )
    return replace(machine, **changes)


def seconds(mechanism: str, workload: Workload) -> float:
    """The true time of one iteration."""
    constant, growing = COSTS.get(mechanism, (2e-6, 0.0))
    training = 3.1 if workload.mode is Mode.TRAINING else 1.0
    return training * workload.outputs * (constant + growing * workload.seq_len)


def peak_bytes(mechanism: str, workload: Workload) -> int:
    """The true allocated peak."""
    scores = workload.batch * workload.heads * workload.seq_len**2 * 4
    linear = workload.tokens * workload.width * 4 * 8
    kept = 3 if workload.mode is Mode.TRAINING else 1
    return kept * (linear + (scores if mechanism == "transformer" else 0)) + 2_000_000


def workloads(lengths: Iterable[int], tokens: int, modes: Iterable[Mode]) -> list[Workload]:
    """One workload per mode and length at a constant number of tokens."""
    return [
        Workload(batch=max(1, tokens // length), seq_len=length, mode=mode, shell=Shell())
        if mode is not Mode.DECODE
        else Workload(batch=1, seq_len=length, mode=mode, level=Level.ATTENTION, causal=True)
        for mode in modes
        for length in lengths
    ]


def facts(mechanism: str) -> CardFacts:
    """A card in words."""
    exponent = EXPONENTS.get(mechanism, 1.0)
    return CardFacts(
        mechanism=mechanism,
        title=f"The paper of {mechanism}",
        authors="A. Author et al.",
        year=2021,
        source="arXiv:2108.09084",
        family=Family.FULL if exponent == 2 else Family.LOW_RANK,
        causality=Causality.OPTIONAL,
        complexity="O(N²·d)" if exponent == 2 else "O(N·d)",
        forms=("eager",),
        options={"bias": False},
    )


def planned(case: Case) -> Planned:
    """The plan's line for a case."""
    workload = case.workload
    maps = 4 * 2 * workload.tokens * workload.width**2
    core = 4 * workload.tokens * workload.width
    core *= workload.seq_len if case.mechanism == "transformer" else 32
    return Planned(
        case=case,
        parameters=4 * workload.width**2 + 12_345,
        projection_flops=maps,
        core_flops=core,
        shell_flops=maps // 2,
        predicted_bytes=int(1.1 * peak_bytes(case.mechanism, workload)),
    )


def timed(
    case: Case, round: int, rng: np.random.Generator, restart: float, noise: float, samples: int
) -> Run:
    """One round of a case: a restart effect common to its samples, and noise of each."""
    effect = seconds(case.mechanism, case.workload) * math.exp(restart * rng.standard_normal())
    rows = []
    for _ in range(samples):
        wall = effect * math.exp(noise * rng.standard_normal())
        training = case.workload.mode is Mode.TRAINING
        shares = (0.32, 0.6, 0.08) if training else (1.0, 0.0, 0.0)
        rows.append(Sample(2, 2 * wall, 3.8 * wall, None, *(2 * wall * part for part in shares)))
    return Run(
        case=case.key,
        part=Part.TIME,
        round=round,
        outcome=Outcome.OK,
        samples=tuple(rows),
        values={"warmup_s": effect, "load_before": 0.2},
        elapsed_s=4 * effect,
    )


def weighed(case: Case) -> Run:
    """The memory pass of a case."""
    peak = float(peak_bytes(case.mechanism, case.workload))
    return Run(
        case=case.key,
        part=Part.MEMORY,
        round=0,
        outcome=Outcome.OK,
        values={"allocated_peak_bytes": peak, "moved_bytes": 3 * peak, "operators": 57.0},
    )


def lost(
    case: Case, outcome: str = Outcome.SKIPPED, cause: str | None = None, reason: str = "no"
) -> Run:
    """The run of a case that was not measured."""
    return Run(case=case.key, part=Part.TIME, round=0, outcome=outcome, cause=cause, reason=reason)


def censored(case: Case) -> Run | None:
    """The transformer's end: over budget at 65,536, out of memory when training at 32,768."""
    workload = case.workload
    if case.mechanism != "transformer" or workload.seq_len < 32_768:
        return None
    if workload.seq_len > 32_768:
        return lost(case, cause=Cause.BUDGET, reason="over the budget: predicted 370 s")
    if workload.mode is Mode.TRAINING:
        return lost(case, Outcome.OOM, reason="can't allocate memory: 48.0 GiB")
    return None


def sweep(
    series: Iterable[str] = ("fastformer", "transformer", "linformer"),
    *,
    lengths: tuple[int, ...] = LENGTHS,
    modes: tuple[Mode, ...] = (Mode.TRAINING, Mode.INFERENCE),
    rounds: int = 3,
    samples: int = 8,
    seed: int = 0,
    restart: float = 0.03,
    noise: float = 0.01,
    end: Callable[[Case], Run | None] = censored,
    form: Callable[[str, Workload], str] = lambda mechanism, workload: "eager",
    machine: Environment | None = None,
) -> Sweep:
    """A sweep of mechanisms, each `name` or `name:form`, whose truth is `seconds`."""
    rng = np.random.default_rng(seed)
    plan: list[Planned] = []
    runs: list[Run] = []
    names = tuple(series)
    for name in names:
        mechanism, _, chosen = name.partition(":")
        for workload in workloads(lengths, TOKENS, modes):
            case = Case(
                mechanism=mechanism, form=chosen or form(mechanism, workload), workload=workload
            )
            plan.append(planned(case))
            if (stop := end(case)) is not None:
                runs.append(stop)
                continue
            runs += [timed(case, r, rng, restart, noise, samples) for r in range(rounds)]
            runs.append(weighed(case))
    mechanisms = tuple(dict.fromkeys(name.partition(":")[0] for name in names))
    return Sweep(
        name="synthetic",
        request=Request(
            models=names,
            lengths=lengths,
            tokens=TOKENS,
            preset="mind-classification",
            level=Level.MODEL,
            modes=modes,
            dtype="float32",
            device="cpu",
            width=WIDTH,
            heads=16,
            layers=2,
            padding=0.0,
            causal=False,
            rounds=rounds,
            budget_s=300.0,
            case_timeout_s=120.0,
            settings=Settings(threads=2),
        ),
        sessions=(machine or environment(),),
        cards=tuple(facts(mechanism) for mechanism in mechanisms),
        plan=tuple(plan),
        runs=tuple(runs),
        finished=True,
    )


def altered(whole: Sweep, change: Callable[[Run], Run], part: Part | None = None) -> Sweep:
    """The sweep with each of its runs changed, or those of one part."""
    runs = (change(run) if part in (None, run.part) else run for run in whole.runs)
    return replace(whole, runs=tuple(runs))


def slowed(run: Run, factor: float) -> Run:
    """The run with samples that took so many times as long."""
    samples = (s._replace(wall_s=factor * s.wall_s, cpu_s=factor * s.cpu_s) for s in run.samples)
    return replace(run, samples=tuple(samples))


def changed(whole: Sweep, mechanism: str, factor: float) -> Sweep:
    """The sweep with every time of one mechanism multiplied."""
    return altered(
        whole, lambda run: slowed(run, factor) if f'"{mechanism}"' in run.case else run, Part.TIME
    )


def raced(whole: Sweep, laps: Callable[[Case, int], Mapping[int, float]]) -> Sweep:
    """The sweep with other samples: the seconds of each lap that a case has in a round."""
    cases = {line.case.key: line.case for line in whole.plan}
    runs = []
    for run in whole.runs:
        if run.samples:
            found = laps(cases[run.case], run.round)
            samples = [Sample(1, s, s, None, s, 0.0, 0.0, lap) for lap, s in found.items()]
            run = replace(run, samples=tuple(samples))
        runs.append(run)
    return replace(whole, runs=tuple(runs))


def on_gpu(sample: Sample, **notes: str) -> Sweep:
    """One case whose runs consist of this sample, with these notes, as a GPU gives them."""
    whole = sweep(("fastformer",), lengths=(128,), modes=(Mode.INFERENCE,), rounds=2)
    runs = (
        replace(run, samples=(sample,) * 8, notes=notes) if run.part is Part.TIME else run
        for run in whole.runs
    )
    return replace(whole, runs=tuple(runs))


def decoded(
    states: Mapping[str, Callable[[int], int]], *, lengths: tuple[int, ...] = LENGTHS, **more: Any
) -> Sweep:
    """A sweep of decoding: the bytes of the state of each series after N tokens."""
    whole = sweep(states, lengths=lengths, modes=(Mode.DECODE,), end=lambda case: None, **more)
    cases = {line.case.key: line.case for line in whole.plan}
    runs = []
    for run in whole.runs:
        case = cases[run.case]
        name = next(n for n in (case.mechanism, f"{case.mechanism}:{case.form}") if n in states)
        n = case.workload.seq_len
        kept = {"state_bytes": float(case.workload.batch * states[name](n))}
        kept = kept if run.part is Part.MEMORY else {}
        runs.append(replace(run, values={**run.values, **kept}))
    request = replace(whole.request, level=Level.ATTENTION)
    return replace(whole, request=request, runs=tuple(runs))
