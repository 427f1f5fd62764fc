"""`attnbench selftest`: what the gate finds on this machine, and how often it is wrong."""

from dataclasses import asdict
from typing import Annotated

import typer

from attnbench.cli import console, options
from attnbench.cli.stopping import stoppable
from attnbench.errors import UsageError
from attnbench.records import Mode
from attnbench.workloads import axes


def selftest(
    models: Annotated[
        str, typer.Option(help="One mechanism, which is slowed down artificially.")
    ] = "transformer",
    length: Annotated[int, typer.Option(min=1, max=axes.LONGEST, help="N.")] = 256,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "cpu",
    budget: Annotated[
        str, typer.Option(help="Time to spend, a minute at least; more gives surer rates.")
    ] = "3m",
    threshold: Annotated[
        float | None, typer.Option(min=0, max=1, help="As in check (0.02; on CUDA 0.03).")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=options.LARGEST_SEED, help="Random seed of inputs and order.")
    ] = 0,
    json_: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Measure false alarms and what is found, by injecting 0, 2, 5, 10 and 20 % more work."""
    chosen = options.selections(models)
    console.begin("starting the processes that measure")
    from attnbench.cli.starting import bench
    from attnbench.gate.cases import Plan, usual_threshold
    from attnbench.gate.selftest import detected
    from attnbench.render import check_page
    from attnbench.render.terminal import table
    from attnbench.store import selftest as cache

    device = options.device(device)
    budget_s = axes.seconds(budget, "--budget")
    if budget_s is None:
        raise UsageError("--budget of a selftest is a time, such as 3m")
    plan = Plan(
        lengths=(length,),
        modes=(Mode.INFERENCE,),
        device=device,
        budget_s=budget_s,
        threshold=usual_threshold(device) if threshold is None else threshold,
        seed=seed,
    )
    with stoppable(lambda: "nothing was kept"), bench(device, seed) as measuring:
        found = detected(plan, chosen, budget_s, measuring)
        machine = measuring.machine()
    sentence = check_page.reliability(found)
    result = {"sentence": sentence, "threshold": plan.threshold, **asdict(found)}
    kept = cache.keep(machine, result)
    if json_:
        console.data({**result, "machine": asdict(machine)})
        return
    shown = console.out()
    shown.print(sentence)
    shown.print(table(check_page.rates(found), shown.width))
    console.err().print(f"kept in {kept}, where check finds it")
