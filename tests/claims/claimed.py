"""A sweep with known true costs, for judging claims."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from attnbench.analysis.summary import summary
from attnbench.claims.bench import MeasuredSweep
from attnbench.claims.checks import CELLS, read_check
from attnbench.claims.claim import Check
from attnbench.records import (
    Case,
    Causality,
    Level,
    Mode,
    Outcome,
    Part,
    Planned,
    Run,
    Sample,
    Shell,
    Sweep,
    Workload,
)
from attnbench.statistics.ratios import Ratios
from tests import sweeps

LENGTHS = tuple(2**power for power in range(7, 14))
TOKENS = 8192


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The cost of one sequence of N tokens; `ends` says how cases ended that were not measured."""

    seconds: Callable[[int], float] = lambda n: 1e-6 * n
    bytes: Callable[[int], float] = lambda n: 1e3 * n
    core: Callable[[int], float] = lambda n: 1e4 * n
    projections: float = 4e5  # FLOPs of the linear projections per token
    ends: Mapping[tuple[Mode, int], Outcome] = field(default_factory=dict)
    kernel: str = ""
    state: Callable[[int], float] | None = None  # bytes that decoding keeps
    first: Callable[[int], float] = lambda n: 1e-7 * n * n  # seconds to the first token


LAB = {
    "transformer:eager": Truth(
        seconds=lambda n: 1e-6 * n * (1 + n / 700),
        bytes=lambda n: 1e3 * n * (1 + n / 500),
        core=lambda n: 1024.0 * n * n,
        ends={(Mode.TRAINING, 8192): Outcome.OOM},
    ),
    "transformer:sdpa": Truth(
        seconds=lambda n: 0.6e-6 * n * (1 + n / 700),
        bytes=lambda n: 900.0 * n,
        core=lambda n: 1024.0 * n * n,
    ),
    "fastformer:eager": Truth(bytes=lambda n: 800.0 * n),
    "linformer:eager[rank=128]": Truth(seconds=lambda n: 1.5e-6 * n),
    "linformer:eager[rank=256]": Truth(seconds=lambda n: 1.9e-6 * n, bytes=lambda n: 900.0 * n),
    "longformer:eager[window=256]": Truth(seconds=lambda n: 3e-6 * n),
    "bigbird:eager": Truth(seconds=lambda n: 3e-6 * n),
    "poolingformer:eager": Truth(
        seconds=lambda n: 3.3e-6 * n, ends={(Mode.TRAINING, 8192): Outcome.SKIPPED}
    ),
    "smart_bird:eager": Truth(core=lambda n: 16.0 * n * n + 2e4 * n),
    "reformer:eager": Truth(core=lambda n: 1e3 * n * math.log(n)),
}


def measured(
    truths: Mapping[str, Truth] = LAB,
    *,
    lengths: tuple[int, ...] = LENGTHS,
    modes: tuple[Mode, ...] = (Mode.TRAINING, Mode.INFERENCE),
    level: Level = Level.MODEL,
    device: str = "cpu",
    rounds: int = 3,
    spread: float = 0.01,
    never: tuple[str, ...] = ("linformer", "bigbird"),
) -> Sweep:
    """The sweep of these series; rounds vary by `spread` (of the logarithm) around the truth."""
    plan, runs = [], []
    for series, truth in truths.items():
        for mode in modes:
            for n in lengths:
                line = _planned(series, truth, mode, n, level)
                plan.append(line)
                runs += _runs(line, truth, rounds, spread)
    whole = sweeps.sweep((), lengths=lengths, modes=modes)
    names = dict.fromkeys(line.case.mechanism for line in plan)
    cards = [
        replace(
            sweeps.facts(name),
            causality=Causality.NEVER if name in never else Causality.OPTIONAL,
            options={"bias": False, "rank": 16, "stride": None},
        )
        for name in names
    ]
    return replace(
        whole,
        request=replace(whole.request, level=level),
        sessions=(sweeps.environment(device=device),),
        cards=tuple(cards),
        plan=tuple(plan),
        runs=tuple(runs),
    )


def bench(sweep: Sweep) -> MeasuredSweep:
    """The sweep in the form that judges claims."""
    return MeasuredSweep(sweep=sweep, cases=summary(sweep), ratios=Ratios(sweep))


def _planned(series: str, truth: Truth, mode: Mode, n: int, level: Level) -> Planned:
    mechanism, form, options = re.fullmatch(r"(\w+):(\w+)(?:\[(.*)\])?", series).groups()
    pairs = [pair.split("=") for pair in (options or "").split(",") if pair]
    workload = Workload(
        batch=max(1, TOKENS // n),
        seq_len=n,
        mode=mode,
        level=level,
        shell=Shell() if level is Level.MODEL else None,
    )
    layers = 2 if level is Level.MODEL else 1
    case = Case(
        mechanism=mechanism,
        form=form,
        options=tuple((name, int(value)) for name, value in pairs),
        workload=workload,
    )
    return Planned(
        case=case,
        parameters=1000,
        projection_flops=int(layers * workload.tokens * truth.projections),
        core_flops=int(layers * workload.batch * truth.core(n)),
        shell_flops=1000,
        predicted_bytes=1_000_000,
        predicted_s=1.0,
    )


def _runs(line: Planned, truth: Truth, rounds: int, spread: float) -> list[Run]:
    workload = line.case.workload
    first = Run(case=line.case.key, part=Part.TIME, round=0, outcome=Outcome.OK)
    ended = truth.ends.get((workload.mode, workload.seq_len))
    if ended is not None:
        return [replace(first, outcome=ended, reason="as was written down")]
    wall = workload.batch * truth.seconds(workload.seq_len)
    found = []
    for i in range(rounds):
        time = wall * math.exp(spread * (i - (rounds - 1) / 2))
        sample = Sample(1, time, time, None, time, 0.0, 0.0)
        values = {"ttft_s": workload.batch * truth.first(workload.seq_len)} if truth.state else {}
        found.append(replace(first, round=i, samples=(sample,), values=values))
    peak = workload.batch * truth.bytes(workload.seq_len)
    notes = {"attention_kernel": truth.kernel} if truth.kernel else {}
    values = {"allocated_peak_bytes": peak + 5e7, "allocated_delta_bytes": peak}
    if truth.state:
        values["state_bytes"] = workload.batch * truth.state(workload.seq_len)
    return [*found, replace(first, part=Part.MEMORY, values=values, notes=notes)]


def check(text: str) -> Check:
    """The check with these cells, in their order: `less | a | b | time | inference | >= 512`."""
    return read_check(dict(zip(CELLS, (cell.strip() for cell in text.split("|")), strict=False)))
