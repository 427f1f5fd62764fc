"""Times two mechanisms in turns: at one length whole and by part, at others around it whole."""

import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from msgspec import ValidationError, convert

from attnbench.analysis.explain import SideTimings
from attnbench.errors import CannotRun, UsageError
from attnbench.records import Planned, Request
from attnbench.run import schedule
from attnbench.run.processes import ServerHandle
from attnbench.run.race import CUT_OFF, Entrant, Race, Round
from attnbench.run.workers import WorkerHandle

MARKING = "attnbench.measure.regions"
LEAST, MOST = 4, 12  # rounds at the main length before others begin, and in all

Pair = tuple[Planned, Planned]


def race_pairs(
    pairs: Mapping[int, Pair],
    at: int,
    request: Request,
    server: ServerHandle,
    observe: Callable[[str], None] = lambda running: None,
) -> dict[int, dict[int, tuple[SideTimings, SideTimings]]]:
    """What was measured of both at each length in each round; by part only at length `at`.

    Other lengths are raced as the budget allows. Raises `CannotRun` if one of the two does not run
    at length `at`.
    """
    end_s = time.monotonic() + (math.inf if request.budget_s is None else request.budget_s)
    draw, settings = random.Random(request.settings.seed), request.settings
    others = sorted(pairs.keys() - {at}, key=lambda n: abs(math.log(n / at)))
    took_s: dict[int, float] = {}
    found: dict[int, dict[int, tuple[SideTimings, SideTimings]]] = defaultdict(dict)

    def start(name: str) -> WorkerHandle:
        return server.worker(limit_bytes=settings.memory_limit_bytes, module=MARKING)

    def left_s() -> float:
        return end_s - time.monotonic()

    def expected_s(n: int) -> float:
        """An upper estimate for a race not yet run: without marks, with quadratic times."""
        return took_s.get(n, took_s.get(at, 0.0) / 2 * max(1.0, n / at) ** 2)

    for round_ in range(MOST):
        with Round(start, draw) as processes:
            for n in [at] if round_ < LEAST else [*others, at]:
                if expected_s(n) > left_s():
                    continue
                begun = time.monotonic()
                race = race_of(pairs[n], request, left_s, marked=n == at)
                entries = processes.race(race, observe)
                took_s[n] = time.monotonic() - begun
                if lost := [name for name, entry in entries.items() if entry.failed]:
                    took_s[n] = math.inf
                    answer = entries[lost[0]].failed or CUT_OFF
                    if n == at and answer is not CUT_OFF:
                        reason = f"{answer['outcome']}: {answer.get('reason', '')}"
                        raise CannotRun(f"{lost[0]}, N = {n:,}: {reason}")
                else:
                    a, b = (measured(entries[planned.case.series]) for planned in pairs[n])
                    found[n][round_] = a, b
    if not found[at]:
        raise CannotRun("the budget ended before both had run once; raise --budget")
    return found


def race_of(pair: Pair, request: Request, left_s: Callable[[], float], marked: bool) -> Race:
    """The race of both, whole and, if `marked`, by part too."""
    settings = request.settings
    how = {**settings.worker_settings, "marked": marked}
    return Race(
        builds={p.case.series: {**asdict(p.case), **how, "filled": p.filled} for p in pair},
        turns=lambda times: {name: schedule.turns(s, settings) for name, s in times.items()},
        limit_s=lambda name, iteration_s: request.case_timeout_s or math.inf,
        left_s=left_s,
    )


def measured(entry: Entrant) -> SideTimings:
    """An entrant's measurements of a round. Raises `CannotRun`."""
    samples = [s._replace(lap=lap) for lap, s in entry.laps.items()]
    try:
        return convert({**entry.finished, "whole": samples}, SideTimings)
    except ValidationError as error:
        raise CannotRun(f"a process gave an impossible answer: {error}") from error


def paired(cases: Sequence[Planned], at: int) -> dict[int, Pair]:
    """Both cases of each length at which both can run.

    Raises `UsageError` if there are not two, and `CannotRun` if they cannot run at length `at`.
    """
    pairs = {}
    for n in {planned.case.workload.seq_len for planned in cases}:
        both = [planned for planned in cases if planned.case.workload.seq_len == n]
        if len(both) != 2:
            names = ", ".join(planned.case.series for planned in both)
            raise UsageError(f"explain compares two different forms; this means {names}")
        refused = [
            f"{planned.case.series}: {planned.refusal}" for planned in both if planned.refusal
        ]
        if refused and n == at:
            raise CannotRun("; ".join(refused))
        if not refused:
            pairs[n] = (both[0], both[1])
    return pairs
