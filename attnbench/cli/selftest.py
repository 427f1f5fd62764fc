"""`attnbench selftest`: what the gate finds on this machine, and how often it is wrong."""

import math
import random
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from attnbench.cli import console, options
from attnbench.cli.stopping import stoppable
from attnbench.errors import CannotRun, UsageError
from attnbench.workloads import axes

if TYPE_CHECKING:
    from attnbench.gate.detection import Power
    from attnbench.records import Fingerprint

MARGIN = 1.5  # times what is needed: a visit on a busy machine takes longer than expected


def selftest(
    models: Annotated[str, typer.Option(help="One mechanism to slow down.")] = "transformer",
    length: Annotated[int, typer.Option(min=1, max=axes.LONGEST, help="N.")] = 256,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "cpu",
    budget: Annotated[str, typer.Option(help="Longer is more certain; a minute at least.")] = "3m",
    threshold: Annotated[
        float | None, typer.Option(min=0, max=1, help="As of check; 0.02, or 0.03 on CUDA.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=options.LARGEST_SEED, help="Of inputs and order.")
    ] = 0,
    json_: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Measure false alarms and what is found, by injecting 0, 2, 5, 10 and 20 % more work."""
    from attnbench.gate.rule import CPU_THRESHOLD, OTHER_THRESHOLD
    from attnbench.store import selftest as cache

    options.known(models)
    console.begin("starting the processes that measure")
    place = options.device(device)
    seconds = axes.seconds(budget, "--budget")
    if seconds is None:
        raise UsageError("--budget of a selftest is a time, such as 3m")
    usual = CPU_THRESHOLD if place == "cpu" else OTHER_THRESHOLD
    limit = usual if threshold is None else threshold
    with stoppable(lambda: "nothing was kept"):
        found, machine = measured(models, length, place, seconds, limit, seed)
    result = {"sentence": sentence(found), "threshold": limit, **asdict(found)}
    kept = cache.keep(machine, result)
    if json_:
        console.data({**result, "machine": asdict(machine)})
        return
    show(found)
    console.err().print(f"kept in {kept}, where check finds it")


def measured(
    models: str, length: int, place: str, budget_s: float, threshold: float, seed: int
) -> tuple["Power", "Fingerprint"]:
    """Visits until the time is over, and what the gate makes of them.

    Raises `CannotRun` as soon as it is known that the time is not enough for one check's pairs.
    """
    begun = time.monotonic()
    from attnbench.cli import checking
    from attnbench.gate.cases import Line, Plan, workload
    from attnbench.gate.detection import power
    from attnbench.gate.selftest import SHARES, against_base, least_s, prepare, visits
    from attnbench.records import Mode
    from attnbench.run.pairs import AGAIN, BASE, HEAD

    modes = (Mode.INFERENCE,)
    plan = Plan(
        chosen=(), lengths=(length,), modes=modes, device=place, seed=seed, budget_s=budget_s
    )
    fewest = plan.pairs + plan.confirm
    refuse_below(least_s(plan, len(SHARES) + 2), budget_s)
    with checking.here(plan, None, models) as (gate, machine):
        root = gate.trees[HEAD]
        if len(gate.plan.chosen) != 1:
            raise UsageError(f"--models {models} is not one mechanism")
        line = Line(chosen=gate.plan.chosen[0], workload=workload(plan, Mode.INFERENCE, length))
        injected = prepare(gate.server, root, line.asked(BASE), SHARES, plan)
        spent_s = time.monotonic() - begun
        refuse_below(spent_s + fewest * injected.race.cost_s, budget_s)
        fit = int((budget_s - spent_s) / injected.race.cost_s)
        console.err().print(f"about {fit} pairs of processes fit into {budget_s:.0f} s")
        laps = []
        for lap in visits(gate.server, root, injected, random.Random(seed), begun + budget_s):
            laps.append(lap)
            gate.observe(f"{len(laps)} pairs")
    if len(laps) < fewest:
        raise CannotRun(
            f"only {len(laps)} of {fewest} pairs fitted into {budget_s:.0f} s, since they took"
            " longer than expected; raise --budget"
        )
    shares = {share: against_base(laps, name) for name, share in injected.shares.items()}
    again = against_base(laps, AGAIN)
    found = power(shares, again, first=plan.pairs, second=plan.confirm, threshold=threshold)
    return found, machine


def refuse_below(needed_s: float, budget_s: float) -> None:
    """Raise `CannotRun` with the way out if the budget is less than one check's pairs need."""
    if budget_s < needed_s:
        enough = 10 * math.ceil(MARGIN * needed_s / 10)
        raise CannotRun(
            f"a selftest needs at least {needed_s:.0f} s here, --budget gives {budget_s:.0f} s;"
            f" try --budget {enough}s"
        )


def sentence(found: "Power") -> str:
    """What `check` quotes."""
    from attnbench.render.units import percent

    wrong = found.false_alarms
    alarms = f"{wrong.slower + wrong.faster} false alarms in {wrong.checks} checks"
    finds = "finds no slowdown of up to 20 % reliably"
    if found.smallest is not None:
        finds = f"finds a slowdown from {percent(found.smallest)}"
    return f"this machine {finds}; {alarms} ({found.pairs} pairs)"


def show(found: "Power") -> None:
    """The rates as a table under the sentence."""
    from attnbench.render.grid import Cell, Table, words
    from attnbench.render.terminal import table
    from attnbench.render.units import percent

    rows = tuple(
        (
            words(f"+{percent(rate.share)}"),
            Cell(percent(rate.found), rate.found),
            Cell(percent(rate.faster / rate.checks), rate.faster / rate.checks),
            Cell(percent(rate.unsure / rate.checks), rate.unsure / rate.checks),
        )
        for rate in found.rates
    )
    shown = console.out()
    shown.print(sentence(found))
    columns = ("extra work", "slower", "faster", "unsure")
    note = "shares of checks made of consecutive pairs; neighbours share pairs"
    grid = Table(name="selftest", title="What the gate said", columns=columns, rows=rows, note=note)
    shown.print(table(grid, shown.width))
