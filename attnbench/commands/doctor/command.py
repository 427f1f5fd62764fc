"""`attnbench doctor`: what this machine is, and what will and will not work."""

import math
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from attnbench.commands import console, options
from attnbench.commands.command import OTHERS
from attnbench.commands.options import shared_option
from attnbench.commands.stopping import stoppable
from attnbench.devices import choose, find, nvml
from attnbench.devices.cgroups import cores
from attnbench.devices.finding import kinds
from attnbench.devices.protocol import Device
from attnbench.errors import AttnbenchError
from attnbench.mechanisms import catalogue
from attnbench.records import Environment, units
from attnbench.report import machine

if TYPE_CHECKING:
    from attnbench.running.pool import Pool

UNMEASURED = "not measured: too little memory was free"


def doctor(
    device: str = shared_option("device", "auto", OTHERS),
    json_: bool = options.as_json(),
) -> None:
    """Show device, versions, measured peak rates, and the forms that do not run here."""
    console.begin("examining this machine")
    from attnbench.devices.host import user_s
    from attnbench.running.session import environment, measuring_server

    chosen = choose(device)
    count = chosen.threads or cores()
    with stoppable(lambda: "nothing was kept"), measuring_server(count) as server:
        here = environment(server, chosen.name, count)
        refused = examine(chosen.name, server)
    checked = "not checked" if math.isnan(user_s(os.getpid())) else "checked"
    facts = {
        "NVML": nvml.state(),
        "laps": f"{checked} against the CPU time that the kernel counts",
        **missing_devices(),
    }
    if json_:
        keyed = {name.lower().replace(" ", "_"): text for name, text in facts.items()}
        console.data({**asdict(here), **keyed, "forms_that_do_not_run": refused})
        return
    shown = console.out().print
    for name, text in {**machine_facts(chosen, here), **facts}.items():
        shown(f"{name:12}{text}")
    shown("What does not run here, and why:" if refused else "All forms run here.")
    for reason in dict.fromkeys(refused.values()):
        shown(f"  {reason}: {', '.join(form for form in refused if refused[form] == reason)}")


def machine_facts(device: Device, here: Environment) -> dict[str, str]:
    """What the machine is, as lines with a name."""
    from attnbench.report import conditions

    clock = device.host_clock(here.threads)
    rows = {
        "device": here.device,
        "processor": f"{here.processor}, {units.many(here.cores, 'core')} available,"
        f" {units.many(here.threads, 'thread')}",
        "timed by": machine.clock_of(here, clock)
        if here.device_memory_bytes is None
        else device.clock,
        "memory": f"{units.size(here.memory_bytes)} available",
        "versions": f"attnbench {here.attnbench}, torch {here.torch}, Python {here.python}",
        "system": here.system,
        "arithmetic": f"{units.flops(here.matmul_flops)}/s, float32 product of square matrices"
        f" of {device.matmul_size:,} rows"
        if here.matmul_flops
        else UNMEASURED,
        "bandwidth": f"{units.size(here.copy_bytes)}/s, reads and writes of a large copy"
        if here.copy_bytes
        else UNMEASURED,
    }
    if here.device_memory_bytes:
        free = units.size(here.device_memory_bytes)
        rows |= {
            "GPU memory": f"{free} free, driver {here.driver}",
            "GPU": conditions.gpu_settings(here),
        }
    warnings = list(machine.noise_warnings(here, clock))
    return rows | ({"warning": "; ".join(warnings)} if warnings else {})


def missing_devices() -> dict[str, str]:
    """Why this machine has none of a kind of device, for each kind that it lacks: `no cuda`."""
    return {f"no {kind}": reason for kind in kinds() if (reason := find(kind).missing())}


def examine(device: str, server: "Pool") -> dict[str, str]:
    """Why forms, and installed mechanisms that cannot be read, do not run on the device."""
    from attnbench.running.plan import describe, process_groups

    refused: dict[str, str] = {}
    for group in process_groups(catalogue.names()):
        try:
            rows = describe(group, device, server)
        except AttnbenchError as error:
            refused[", ".join(group)] = str(error)
        else:
            for row in rows:
                refused |= {f"{row['name']}:{form}": why for form, why in row["refused"].items()}
    return refused
