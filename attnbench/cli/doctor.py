"""`attnbench doctor`: what this machine is, and what will and will not work."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from attnbench.cli import console, options
from attnbench.errors import AttnbenchError
from attnbench.records import Environment


def doctor(
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, max=options.LARGEST, help="CPU threads.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Tell device, versions, measured peaks, and which forms run here."""
    from attnbench.cli.measuring import environment
    from attnbench.cli.processes import measuring

    place = options.device(device)
    settings = options.settings(place, threads, 0, True, False, None)
    here = environment(measuring(), place, settings)
    found = {**asdict(here), "nvml": nvml(), "resident_peak": resident()}
    if json_:
        console.data({**found, "forms_that_do_not_run": refusals(place)})
    else:
        show(here, found, refusals(place))


def show(here: Environment, found: dict[str, Any], refused: dict[str, str]) -> None:
    """A few lines; what will not work last, with its reason."""
    from attnbench.render.units import flops, many, size

    shown = console.out().print
    shown(f"device      {here.device}")
    using = many(here.threads, "thread")
    shown(f"processor   {here.processor}, {many(here.cores, 'core')} to use, {using}")
    shown(f"memory      {size(here.memory_bytes)} to use")
    if here.device_memory_bytes:
        shown(f"GPU memory  {size(here.device_memory_bytes)} free, driver {here.driver}")
    shown(f"versions    attnbench {here.attnbench}, torch {here.torch}, Python {here.python}")
    shown(f"system      {here.system}")
    shown(f"products    {flops(here.matmul_flops or 0)}/s, measured: a large float32 product")
    shown(f"copies      {size(here.copy_bytes or 0)}/s, measured: read and written")
    shown(f"load        {here.load} over the last minute")
    shown(f"NVML        {found['nvml']}")
    shown(f"resident    {found['resident_peak']}")
    shown("forms       all run here" if not refused else "forms that do not run here")
    for form, reason in refused.items():
        shown(f"  {form}: {reason}")


def nvml() -> str:
    """Whether NVML answers, or why not."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return f"answers, {pynvml.nvmlDeviceGetCount()} devices"
    except Exception as error:
        return f"does not answer: {error}"


def resident() -> str:
    """Whether the resident peak of a process can be measured."""
    from attnbench.measure.memory import resident_available

    return "peaks can be measured" if resident_available() else "peaks cannot be measured here"


def refusals(place: str) -> dict[str, str]:
    """Forms that do not run on the device in either mode, and packages that cannot be read."""
    from attnbench.cli.processes import reading
    from attnbench.registry import names
    from attnbench.workloads.reading import apart, describe

    found, launch = {}, reading()
    for group in apart(names()):
        try:
            rows = describe(group, place, launch)
        except AttnbenchError as error:
            found[", ".join(group)] = str(error)
            continue
        for row in rows:
            found |= {f"{row['name']}:{form}": why for form, why in row["refused"].items()}
    return found
