"""`sweep --resume`: restores the stored request, and refuses options that differ from it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnbench.devices.finding import AUTO, choose
from attnbench.errors import DifferentSweep
from attnbench.fleet import folder as fleets
from attnbench.records import Request, Sweep
from attnbench.store.journal import load
from attnbench.store.resuming import DIVIDING
from attnbench.workloads.options import flag, of_request, options
from attnbench.workloads.requests import FILE, from_toml, refuse_early_end


def load_earlier(folder: Path) -> tuple[dict[str, Any], Sweep | None]:
    """The options that the sweep in the folder was started with, or the sweep.

    A fleet has no journal: its options come from a file. Raises `StoreError`, `UsageError`.
    """
    if fleets.begun(folder):
        return from_toml(folder / FILE), None
    return {}, load(folder)


def resumed_request(sweep: Sweep, given: Mapping[str, Any]) -> Request:
    """The request of the sweep with new limits; `given` are the options of this time.

    Raises `DifferentSweep` if one of them asks for something else.
    """
    known, before = options(), of_request(sweep.request)
    fixed = DIVIDING if sweep.shard else ()
    free = {n for n in known if known[n].limit and known[n].field not in fixed}
    others = {n: v for n, v in given.items() if known[n].affects_measurement and n not in free}
    differing = [
        f"{flag(name)}: {shown(name, before.get(name))} there, {shown(name, here)} here"
        for name, here in others.items()
        if here not in (before.get(name), AUTO)
    ]
    if differing:
        raise DifferentSweep(
            f"cannot resume {sweep.name!r} as another sweep ({'; '.join(differing)});"
            " leave these options out, or sweep into another folder with --out"
        )
    limits = {known[name].field: value for name, value in given.items() if name in free}
    wanted = replace(sweep.request, **limits)
    refuse_early_end("precision" in limits, wanted.rounds)
    memory_bytes = choose(wanted.device).sampling(False, False).get("memory_limit_bytes")
    return replace(wanted, settings=replace(wanted.settings, memory_limit_bytes=memory_bytes))


def shown(name: str, value: Any) -> str:
    """The value of an option in a message."""
    text = "the default" if value is None else options()[name].text(value)
    return text if isinstance(text, str) else "on" if text else "off"
