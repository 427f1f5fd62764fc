"""What a resumed sweep still has to do, and whether two journals are of the same sweep."""

from collections.abc import Mapping
from dataclasses import asdict, fields

from attnbench.errors import DifferentSweep
from attnbench.records import Cause, Environment, Request, Run, Sweep
from attnbench.records.storage.schema import Start

# limits define no case: raising them is what resuming is for
FREE = frozenset(each.name for each in fields(Request) if each.metadata.get("limit"))


def done(sweep: Sweep) -> list[Run]:
    """The runs that need not be repeated.

    Cases for which no process ran are not done: a larger budget, limit or machine may reach them.
    Nor are those whose process was killed, perhaps by someone else.
    """
    return [run for run in sweep.runs if run.elapsed_s and run.cause is not Cause.KILLED]


def refuse_other(sweep: Sweep, start: Start) -> None:
    """Raises `DifferentSweep` unless request, shard, machine and version are those of the sweep.

    A journal of several shards is one of a whole sweep.
    """
    stored = defining(sweep.request)
    new = defining(start.request)
    if sweep.sessions:
        stored |= {"shard": sweep.shard or "all", **machine(sweep.sessions[0])}
        new |= {"shard": start.shard or "all", **machine(start.environment)}
    refuse_differences(sweep, stored, new)


def refuse_differences(
    sweep: Sweep, stored: Mapping[str, object], new: Mapping[str, object]
) -> None:
    """Raises `DifferentSweep` if what defines the sweep is not what is asked for now."""
    if differing := differences(stored, new):
        raise DifferentSweep(
            f"cannot resume {sweep.name!r} as another sweep ({'; '.join(differing)}); "
            "repeat its options on its machine, or sweep into another folder with --out"
        )


def defining(request: Request) -> dict[str, object]:
    """The options that define the cases, and how they are measured and divided, by name."""
    free = {"settings", "memory_limit_bytes", "device", *FREE}
    values = {**asdict(request), **asdict(request.settings)}
    return {name: value for name, value in values.items() if name not in free}


def machine(here: Environment) -> dict[str, object]:
    """What must agree between two machines, and the version of attnbench."""
    return {"attnbench": here.attnbench, **dict(here.fingerprint)}


def differences(stored: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """What differs, as `device: cpu there, NVIDIA H100 here`; lists regardless of their order."""
    listed = [(name, _listed(stored[name]), _listed(new[name])) for name in stored]
    return [
        f"{name}: {','.join(old)} there, {','.join(now)} here"
        for name, old, now in listed
        if sorted(old) != sorted(now)
    ]


def _listed(value: object) -> list[str]:
    return [*map(str, value)] if isinstance(value, tuple) else [str(value)]
