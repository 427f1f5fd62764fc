"""`sweep --resume`: what the folder says was requested, and whether that is still requested."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from attnbench.errors import DifferentSweep, UsageError
from attnbench.fleet import folder as fleets
from attnbench.records import LEAST_ROUNDS, Request, Shard
from attnbench.store.journal import load
from attnbench.workloads import config
from attnbench.workloads.asked import Asked, flag
from attnbench.workloads.requests import written

# raising them is what resuming is for
LIMITS = frozenset({"budget", "case_timeout", "precision", "rounds"})
LIMITS_OF_SHARDS = LIMITS - {"rounds"}  # the rounds decide which shard measures what


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """A sweep to go on with: its options as users write them; a fleet has no request of its own."""

    folder: Path
    options: Mapping[str, str | bool]
    request: Request | None = None
    shard: Shard | None = None

    def asked(self, given: Mapping[str, str | bool]) -> Asked:
        """Its options with those given; in too few rounds its precision has no effect."""
        rounds = Asked.of(given).read("rounds")
        ends = rounds is None or rounds >= LEAST_ROUNDS
        own = {name: self.options[name] for name in self.options if ends or name != "precision"}
        return Asked.of({**own, **given})


def chosen_folder(resume: str | None, out: Path | None) -> Path | None:
    """The folder that `--resume` or `--out` names; `--resume` alone is empty text."""
    if resume == "" and out is None:
        raise UsageError("--resume needs the folder of the sweep to go on with")
    if resume and out is not None:
        raise UsageError("--resume FOLDER is the folder of the sweep: leave out --out")
    return Path(resume) if resume else out


def earlier(folder: Path) -> Earlier:
    """What was requested of the sweep in the folder. Raises `StoreError`, `UsageError`."""
    if fleets.begun(folder):
        file = folder / config.FILE
        return Earlier(folder=folder, options=config.read(file) if file.exists() else {})
    sweep = load(folder)
    return Earlier(
        folder=folder,
        options=written(sweep.request),
        request=sweep.request,
        shard=sweep.shards[0] if len(sweep.shards) == 1 else None,
    )


def continued(before: Earlier, requested: Request, given: Collection[str]) -> Request:
    """The stored request with new limits; `given` are the options written this time.

    Raises `DifferentSweep` if one of them asks for something else.
    """
    assert before.request is not None, "a fleet compares its shards"
    now, free = written(requested), LIMITS_OF_SHARDS if before.shard else LIMITS
    pairs = [(n, before.options.get(n), now[n]) for n in given if n in now and n not in free]
    differing = [
        f"{flag(name)}: {_shown(old)} there, {_shown(new)} here"
        for name, old, new in pairs
        if _parts(old) != _parts(new)
    ]
    if differing:
        raise DifferentSweep(
            f"cannot resume '{before.folder}' as another sweep ({'; '.join(differing)});"
            " leave these options out, or sweep into another folder with --out"
        )
    return replace(
        before.request,
        rounds=requested.rounds,
        precision=(requested if "precision" in given else before.request).precision,
        budget_s=requested.budget_s,
        case_timeout_s=requested.case_timeout_s,
        settings=replace(
            before.request.settings, memory_limit_bytes=requested.settings.memory_limit_bytes
        ),
    )


def _parts(value: str | bool | None) -> object:
    """A value to compare; the order of a list does not matter."""
    return sorted(value.split(",")) if isinstance(value, str) else value


def _shown(value: str | bool | None) -> str:
    words = {True: "on", False: "off", None: "the default"}
    return value if isinstance(value, str) else words[value]
