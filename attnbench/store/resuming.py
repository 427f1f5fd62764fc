"""What a resumed sweep still has to do, and whether two journals are of the same sweep."""

from dataclasses import asdict, fields
from typing import Any

from attnbench.errors import DifferentSweep
from attnbench.records import Cause, Environment, Fingerprint, Part, Request, Sweep
from attnbench.store.schema import Start

# limits define no case: raising them is what resuming is for
FREE = frozenset(each.name for each in fields(Request) if each.metadata.get("limit"))
# what decides which shard measures what
DIVIDING = frozenset({"rounds", "case_timeout_s"})


def done(sweep: Sweep) -> frozenset[tuple[str, Part, int]]:
    """Case key, part and round of every run that need not be repeated.

    Cases for which no process ran are not done: a larger budget, limit or machine may reach them.
    Nor are those whose process was killed, perhaps by someone else.
    """
    done = (run for run in sweep.runs if run.elapsed_s and run.cause is not Cause.KILLED)
    return frozenset((run.case, run.part, run.round) for run in done)


def refuse_other(sweep: Sweep, start: Start) -> None:
    """Raises `DifferentSweep` unless request, machine and shard are those of the sweep.

    A journal of several shards is one of a whole sweep.
    """
    differences = request_differences(sweep.request, start.request, divided=start.shard is not None)
    if sweep.sessions:
        if sweep.shard != start.shard:
            differences.append(f"shard: {sweep.shard or 'all'} there, {start.shard or 'all'} here")
        first, here = sweep.sessions[0], start.environment
        if start.shard is not None:
            differences += shard_differences(first, here)
        else:
            differences += machine_differences(first.fingerprint, here.fingerprint)
    if differences:
        raise DifferentSweep(
            f"cannot resume {sweep.name!r} as another sweep ({'; '.join(differences)}); "
            "repeat its options on its machine, or sweep into another folder with --out"
        )


def request_differences(stored: Request, new: Request, divided: bool = False) -> list[str]:
    """What differs of what defines the cases, in a `divided` sweep also the shards."""
    free = FREE - DIVIDING if divided else FREE
    return _differences(_asked(stored, free), _asked(new, free))


def shard_differences(stored: Environment, new: Environment) -> list[str]:
    """What differs between the machines of two shards, or between the versions that ran there."""
    versions = {"attnbench": stored.attnbench}, {"attnbench": new.attnbench}
    return _differences(*versions) + machine_differences(stored.fingerprint, new.fingerprint)


def machine_differences(stored: Fingerprint, new: Fingerprint) -> list[str]:
    """What differs between machines: `device: NVIDIA A100 there, NVIDIA H100 here`."""
    return _differences(asdict(stored), asdict(new))


def _asked(request: Request, free: frozenset[str]) -> dict[str, Any]:
    values = {**asdict(request), **asdict(request.settings)}
    return {n: v for n, v in values.items() if n not in {"settings", "memory_limit_bytes", *free}}


def _differences(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What differs; lists are compared regardless of order."""
    listed = [(name, *map(_listed, (stored[name], new[name]))) for name in stored]
    return [
        f"{name}: {','.join(old)} there, {','.join(now)} here"
        for name, old, now in listed
        if sorted(old) != sorted(now)
    ]


def _listed(value: Any) -> list[str]:
    return [*map(str, value)] if isinstance(value, tuple) else [str(value)]
