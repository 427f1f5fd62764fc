"""Sweeps on a machine that runs nothing: a request, a plan, and what came of it."""

from dataclasses import replace

from attnbench.analysis.costs import PRODUCTS, CostKind, Costs
from attnbench.records import (
    Case,
    Clock,
    Level,
    Mode,
    Outcome,
    Part,
    Planned,
    Request,
    Run,
    Sample,
    Settings,
    Workload,
)
from attnbench.running import sweep as loop
from attnbench.running.agenda import Agenda

GIB = 1 << 30
RATES = PRODUCTS * 1e9, 1e30  # by which a case of 10⁹ FLOPs is guessed to take a second


REQUEST = Request(
    models=("slow", "fast"),
    lengths=(128, 256, 512),
    tokens=512,
    preset="mind-classification",
    level=Level.ATTENTION,
    modes=(Mode.INFERENCE,),
    dtype="float32",
    device="cpu",
    width=16,
    heads=4,
    layers=1,
    padding=0.0,
    causal=False,
    rounds=3,
    budget_s=None,
    case_timeout_s=1000.0,
    settings=Settings(sample_s=1.0, warmup_s=0.0),
)


def planned(mechanism, seq_len, flops, refusal="", size=1000, mode=Mode.INFERENCE, form="eager"):
    workload = Workload(
        batch=max(1, 512 // seq_len), seq_len=seq_len, level=Level.ATTENTION, mode=mode
    )
    return Planned(
        case=Case(mechanism=mechanism, form=form, workload=workload),
        parameters=1,
        projection_flops=flops,
        core_flops=0,
        shell_flops=0,
        predicted_bytes=size,
        refusal=refusal,
    )


PLAN = tuple(
    planned(name, n, flops)
    for name, flops in (("slow", 10**9), ("fast", 10**8))
    for n in (128, 256, 512)
)


def sweep(machine, plan=PLAN, request=REQUEST, memory=GIB, start=None, watch=None, **more):
    """The agenda of a sweep that has ended; `watch` are further arguments of the loop."""
    how = {"clock": machine.clock, "rates": RATES, **more}
    agenda = Agenda(request=request, plan=plan, memory_bytes=memory, **how)
    loop.make_visits(agenda, start or machine.start, machine.append, **(watch or {}))
    return agenda


def outcomes(machine):
    """The last run of each case, part and round, as a journal is read."""
    return {(run.case, run.part, run.round): run for run in machine.stored}


def laps(run):
    return [sample.lap for sample in run.samples]


def slow_is(seconds):
    return lambda case: seconds if case.mechanism == "slow" else 0.1


def timed(line, laps, values, **more):
    """A run of laps of 0.1 s."""
    samples = (Sample(1, 0.1, 0.1, None, 0.1, 0.0, 0.0),) * laps
    run = Run(case=line.case.key, part=Part.TIME, round=0, outcome=Outcome.OK, **more)
    return replace(run, samples=samples, values=values)


def predicted(planned, *known):
    """Seconds of a case after the others were measured."""
    lines = [planned, *(line for line, _ in known)]
    costs = Costs(lines, RATES)
    for line, took_s in known:
        costs.take(CostKind.SECONDS, line, took_s)
    return costs.iteration_s(planned)


BY_CORE = replace(REQUEST, settings=replace(REQUEST.settings, clock=Clock.CPU, faulting_s=3.0))
