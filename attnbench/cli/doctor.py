"""`attnbench doctor`: what this machine is, and what will and will not work."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnbench.cli import console, options
from attnbench.cli.stopping import stoppable
from attnbench.device import choose
from attnbench.errors import AttnbenchError
from attnbench.records import Environment

if TYPE_CHECKING:
    from attnbench.run.processes import Server


def doctor(
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, max=options.LARGEST, help="CPU threads.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show device, versions, measured peaks, and the forms that do not run here."""
    console.begin("looking at this machine")
    from attnbench.cli.measuring import environment
    from attnbench.cli.starting import own_server
    from attnbench.measure import nvml

    place = choose(device)
    settings = options.settings(place, threads, 0, True, False, None)
    with stoppable(lambda: "nothing was kept"), own_server(settings.threads) as server:
        here = environment(server, place.name, settings.threads)
        refused = refusals(place.name, server)
    found = {**asdict(here), "nvml": nvml.state(), "resident_peak": resident()}
    if json_:
        console.data({**found, "forms_that_do_not_run": refused})
    else:
        show(here, found, refused)


def show(here: Environment, found: dict[str, Any], refused: dict[str, str]) -> None:
    """A few lines; what will not work last, with its reason."""
    from attnbench.cli.measuring import doubts
    from attnbench.units import flops, many, size

    rows = {
        "device": here.device,
        "processor": f"{here.processor}, {many(here.cores, 'core')} to use,"
        f" {many(here.threads, 'thread')}",
        "memory": f"{size(here.memory_bytes)} to use",
        "versions": f"attnbench {here.attnbench}, torch {here.torch}, Python {here.python}",
        "system": here.system,
        "arithmetic": f"{flops(here.matmul_flops or 0)}/s measured, of a large float32 product",
        "bandwidth": f"{size(here.copy_bytes or 0)}/s measured, read and written by a large copy",
        "load": load(here),
        "NVML": found["nvml"],
        "peak memory": found["resident_peak"],
    }
    if here.device_memory_bytes:
        free = size(here.device_memory_bytes)
        rows["GPU memory"] = f"{free} free, driver {here.driver}"
    shown = console.out().print
    for name, text in rows.items():
        shown(f"{name:12}{text}")
    for doubt in doubts(here):
        shown(f"warning     {doubt}")
    shown("forms       all run here" if not refused else "forms that do not run here")
    for form, reason in refused.items():
        shown(f"  {form}: {reason}")


def load(here: Environment) -> str:
    """What else is at work, now and over the last minute."""
    from attnbench.units import many

    now = "" if here.busy_cores is None else f"others take {here.busy_cores:.1f} now"
    minute = "" if here.load is None else f"load average {here.load:.1f} over the last minute"
    on = f" ({many(here.cores, 'core')})"
    return "; ".join(filter(None, (now, minute))) + on if now or minute else "not known"


def resident() -> str:
    """Whether the resident peak of a process can be measured."""
    from attnbench.measure.memory import resident_available

    return "peaks can be measured" if resident_available() else "peaks cannot be measured here"


def refusals(device: str, server: "Server") -> dict[str, str]:
    """Forms that do not run on the device in either mode, and packages that cannot be read."""
    from attnbench.registry import names
    from attnbench.workloads.reading import apart, describe

    found = {}
    for group in apart(names()):
        try:
            rows = describe(group, device, server)
        except AttnbenchError as error:
            found[", ".join(group)] = str(error)
            continue
        for row in rows:
            found |= {f"{row['name']}:{form}": why for form, why in row["refused"].items()}
    return found
