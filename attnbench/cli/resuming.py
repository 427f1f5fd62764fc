"""`sweep --resume`: restores the stored request, and refuses options that differ from it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnbench.devices.finding import AUTO, choose
from attnbench.errors import DifferentSweep, UsageError
from attnbench.fleet import folder as fleets
from attnbench.records import Request, Sweep
from attnbench.store.journal import load
from attnbench.workloads import config
from attnbench.workloads.options import flag, of_request, options
from attnbench.workloads.requests import refuse_early_end, request


def chosen_folder(resume: str | None, out: Path | None) -> Path | None:
    """The folder that `--resume` or `--out` names; `--resume` alone is empty text."""
    if resume == "" and out is None:
        raise UsageError("--resume needs the folder of the sweep to continue")
    if resume and out is not None:
        raise UsageError("--resume FOLDER is the folder of the sweep: leave out --out")
    return Path(resume) if resume else out


def load_earlier(folder: Path) -> tuple[dict[str, Any], Sweep | None]:
    """The options that the sweep in the folder was started with, or the sweep.

    A fleet has no journal: its options come from a file. Raises `StoreError`, `UsageError`.
    """
    if fleets.begun(folder):
        file = folder / config.FILE
        return config.read(file) if file.exists() else {}, None
    return {}, load(folder)


def resumed_request(sweep: Sweep, given: Mapping[str, Any], anyway: bool = False) -> Request:
    """The request of the sweep with new limits; `given` are the options of this time.

    Raises `DifferentSweep` if one of them asks for something else, unless `anyway`.
    """
    known, wanted, before = options(), sweep.request, of_request(sweep.request)
    # the rounds decide which shard measures what
    free = {n for n in known if known[n].limit and not (sweep.shard and n == "rounds")}
    limits = {name: value for name, value in given.items() if name in free}
    others = {n: v for n, v in given.items() if known[n].affects_measurement and n not in free}
    differing = list(differences(before, others))
    if differing and anyway:
        wanted = request({**before, **others})
    elif differing:
        raise DifferentSweep(
            f"cannot resume {sweep.name!r} as another sweep ({'; '.join(differing)});"
            " leave these options out, or sweep into another folder with --out"
        )
    wanted = replace(wanted, **{known[name].field: limits[name] for name in limits})
    refuse_early_end("precision" in limits, wanted.rounds)
    memory_bytes = choose(wanted.device).sampling(False, False).get("memory_limit_bytes")
    return replace(wanted, settings=replace(wanted.settings, memory_limit_bytes=memory_bytes))


def differences(before: Mapping[str, Any], others: Mapping[str, Any]) -> Iterator[str]:
    """How options differ from those of the stored sweep: `--seed: 0 there, 4 here`."""
    for name, here in others.items():
        there = before.get(name)
        if comparison_key(there) != comparison_key(here) and here != AUTO:
            yield f"{flag(name)}: {shown(name, there)} there, {shown(name, here)} here"


def shown(name: str, value: Any) -> str:
    """The value of an option in a message."""
    text = None if value is None else options()[name].text(value)
    if isinstance(text, str):
        return text
    return "the default" if text is None else "on" if text else "off"


def comparison_key(value: object) -> object:
    """A value to compare; the order of a list does not matter."""
    return set(value) if isinstance(value, tuple) else value
