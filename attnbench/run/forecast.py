"""Simulates a sweep: its session, on a machine where everything takes as long as predicted.

The session is that of a sweep, so a forecast makes the decisions that the sweep would make if its
first predictions were exact. Nothing is measured, and time passes only on the machine's clock.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from attnbench.records import Block, Case, Part, Planned, Request, Run, Sample, canonical
from attnbench.run import schedule
from attnbench.run.schedule import OVERHEAD_S
from attnbench.run.seen import ObservedTimes
from attnbench.run.session import Session
from attnbench.run.workers import Answer

LOADING_S = 3.0  # loading torch and reading cards, before the budget begins to run
PEAKS_S = 1.5  # measuring the peak rates of the machine
CASE = tuple(f.name for f in fields(Case))


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What the session did with each case, by its key."""

    total_s: float  # from the command to the last run
    rounds: Mapping[str, int]  # in how many rounds a case is timed; at least 1
    left_out: Mapping[str, Run]  # why another case is not timed


def forecast(
    request: Request,
    plan: Sequence[Planned],
    memory_bytes: int | None,
    share: Mapping[Block, tuple[int, ...]] | None = None,
) -> Forecast:
    """The forecast of a sweep, or of the `share` of a shard; None is memory without a limit."""
    machine = Machine(plan, request)
    session = Session(
        request=request,
        plan=tuple(plan),
        store=machine,
        start=machine.start,
        memory_bytes=1 << 62 if memory_bytes is None else memory_bytes,
        clock=lambda: machine.now,
        begun=-PEAKS_S,
        share=share,
    )
    session.run()
    timed = Counter(run.case for run in machine.stored if run.part is Part.TIME and run.samples)
    left_out = {run.case: run for run in machine.stored if run.case not in timed}
    return Forecast(
        total_s=LOADING_S + PEAKS_S + machine.now, rounds=dict(timed), left_out=left_out
    )


class Machine:
    """A clock, a store, and workers that need, and report, what `run.schedule` predicts."""

    def __init__(self, plan: Sequence[Planned], request: Request) -> None:
        self.planned = {planned.case.key: planned for planned in plan}
        self.settings = request.settings
        self.now = 0.0  # seconds since the session began
        self.stored: list[Run] = []

    def append(self, *runs: Run) -> None:
        """Keep what the session would write into its journal."""
        self.stored += runs

    def start(self, series: str, *, round_: int = 0, measures_memory: bool = False) -> Any:
        """A process; its start is included in the time of a visit or of measuring memory."""
        return Simulated(self)


class Simulated:
    """A process of the machine; it never fails."""

    alive = True

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.planned: Planned
        self.seen = ObservedTimes()

    def ask(self, timeout_s: float, do: str, **asked: Any) -> Answer:
        """The answer, after advancing the clock by the time that it takes."""
        if do in ("build", "measure_memory"):
            key = canonical({name: asked[name] for name in CASE})
            self.planned = self.machine.planned[key]
        planned, iterations = self.planned, asked.get("iterations", 1)
        each_s = planned.predicted_s
        compile_s = schedule.COMPILE_S * planned.compiles
        before_s = compile_s + each_s * planned.compiles + planned.prefill_s
        warm_s = schedule.warm_s(each_s, self.machine.settings)
        took_s = {
            "build": before_s + OVERHEAD_S[Part.TIME] + warm_s,
            "lap": each_s * iterations,
            "finish": schedule.ENERGY_S * self.machine.settings.energy,
            "measure_memory": before_s + schedule.memory_s(each_s),
        }[do]
        self.machine.now += min(took_s, timeout_s)
        self.seen.waited_s += took_s
        self.seen.used_s += took_s
        self.seen.user_s += took_s
        if took_s > timeout_s:
            return {"outcome": "timeout", "reason": f"no answer after {timeout_s:.0f} s"}
        sample = Sample(iterations, took_s, took_s, None, took_s, 0.0, 0.0)
        answers: Mapping[str, Answer] = {
            "build": {"iteration_s": each_s},
            "lap": {"sample": sample},
            "finish": {"values": {"compile_s": compile_s}, "needs_new_process": False},
            "measure_memory": {"values": {"allocated_peak_bytes": planned.predicted_bytes}},
        }
        return {"outcome": "ok", **answers[do]}

    def end(self) -> int:
        """Nothing is left running."""
        return 0
