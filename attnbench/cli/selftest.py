"""`attnbench selftest`: what the gate detects on this machine, and how often it is wrong."""

from dataclasses import asdict

from attnbench.cli import console, options
from attnbench.cli.options import option
from attnbench.cli.stopping import stoppable
from attnbench.cli.typer_options import shared_option
from attnbench.devices.finding import choose
from attnbench.errors import UsageError
from attnbench.modes import USUAL
from attnbench.workloads import axes


def selftest(
    models: str = shared_option(
        "models", "transformer", text="Mechanism to slow down artificially."
    ),
    length: str = option("N", "Sequence length.", default="256"),
    device: str = shared_option("device", "cpu"),
    budget: str = option(
        "TIME", "Time to spend, at least two minutes; more gives more precise rates.", default="3m"
    ),
    threshold: str | None = options.threshold_option(),
    seed: str = shared_option("seed", "0"),
    json_: bool = options.as_json(),
) -> None:
    """Measure false-alarm and detection rates, by adding 0, 2, 5, 10 and 20 % of work."""
    chosen = options.selections(models)
    console.begin("starting the processes that measure")
    from attnbench.cli.starting import runner
    from attnbench.gate.cases import CheckPlan
    from attnbench.gate.selftest import detected
    from attnbench.render import check_page
    from attnbench.store import selftest as cache

    measured, drawn = choose(device), options.read("seed", seed)
    budget_s = axes.seconds(budget, "--budget")
    if budget_s is None:
        raise UsageError("selftest needs a --budget other than none, such as 3m")
    plan = CheckPlan(
        lengths=(axes.size(length, "--length", axes.LONGEST),),
        modes=(USUAL,),
        device=measured.name,
        budget_s=budget_s,
        threshold=options.threshold(threshold, measured.threshold),
        seed=drawn,
    )
    with stoppable(lambda: "nothing was kept"), runner(measured.name, drawn) as measuring:
        detection = detected(plan, chosen, budget_s, measuring)
        machine = measuring.machine()
    sentence = check_page.reliability(detection)
    result = {"sentence": sentence, "threshold": plan.threshold, **asdict(detection)}
    if json_:
        console.data({**result, "machine": asdict(machine)})
    else:
        console.out().print(sentence)
        console.show(check_page.rates(detection))
    path = cache.keep(machine, result)
    console.err().print(f"stored in {path}, where check finds it")
