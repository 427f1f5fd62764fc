"""`sweep --resume`: restores the stored request, and refuses options that differ from it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from attnbench.devices.finding import AUTO, choose
from attnbench.errors import DifferentSweep, UsageError
from attnbench.fleet import folder as fleets
from attnbench.records import Request, Sweep
from attnbench.store.journal import load
from attnbench.workloads import config
from attnbench.workloads.options import Options, flag, option_specs
from attnbench.workloads.requests import refuse_early_end, request

Texts = Mapping[str, str | bool]

# options that resuming may change, with the fields of a request that they fill
LIMITS = MappingProxyType(
    {
        "budget": "budget_s",
        "case_timeout": "case_timeout_s",
        "precision": "precision",
        "rounds": "rounds",
    }
)


def chosen_folder(resume: str | None, out: Path | None) -> Path | None:
    """The folder that `--resume` or `--out` names; `--resume` alone is empty text."""
    if resume == "" and out is None:
        raise UsageError("--resume needs the folder of the sweep to continue")
    if resume and out is not None:
        raise UsageError("--resume FOLDER is the folder of the sweep: leave out --out")
    return Path(resume) if resume else out


def load_earlier(folder: Path) -> tuple[Texts, Sweep | None]:
    """The options of the sweep in the folder, and the sweep.

    A fleet has no journal: its options come from a file. Raises `StoreError`, `UsageError`.
    """
    if fleets.begun(folder):
        file = folder / config.FILE
        return config.read(file) if file.exists() else {}, None
    sweep = load(folder)
    return sweep.request.options, sweep


def resumed_request(sweep: Sweep, given: Texts, anyway: bool = False) -> Request:
    """The request of the sweep with new limits; `given` are the options written this time.

    Raises `DifferentSweep` if one of them asks for something else, unless `anyway`.
    """
    # the rounds decide which shard measures what
    limits = {n: given[n] for n in LIMITS if n in given and not (sweep.shard and n == "rounds")}
    others = {
        n: given[n] for n in given if option_specs()[n].affects_measurement and n not in limits
    }
    wanted = sweep.request
    if others and anyway:
        wanted = request(Options.of({**wanted.options, **others}))
    elif differing := list(differences(wanted.options, others)):
        raise DifferentSweep(
            f"cannot resume {sweep.name!r} as another sweep ({'; '.join(differing)});"
            " leave these options out, or sweep into another folder with --out"
        )
    options = Options.of(limits)
    wanted = replace(wanted, **{LIMITS[name]: options.value(name) for name in limits})
    refuse_early_end(options.precision, wanted.rounds)
    memory_bytes = choose(wanted.device).sampling(False, False).get("memory_limit_bytes")
    return replace(
        wanted,
        settings=replace(wanted.settings, memory_limit_bytes=memory_bytes),
        options={**wanted.options, **limits},
    )


def differences(before: Texts, others: Texts) -> Iterator[str]:
    """How options differ from those of the stored sweep: `--seed: 0 there, 4 here`."""
    for name, text in others.items():
        there, here = (comparison_key(Options.of(texts).value(name)) for texts in (before, others))
        if there != here and text != AUTO:
            yield f"{flag(name)}: {option_text(before.get(name))} there, {option_text(text)} here"


def option_text(text: str | bool | None) -> str:
    """An option in a message."""
    if isinstance(text, str):
        return text
    return "the default" if text is None else "on" if text else "off"


def comparison_key(value: object) -> object:
    """A value to compare; the order of a list does not matter."""
    return set(value) if isinstance(value, tuple) else value
