"""What a resumed sweep still has to do, and whether two journals are of the same sweep."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from attnbench.errors import DifferentSweep
from attnbench.records import Cause, Environment, Outcome, Request, Run, Sweep
from attnbench.records.storage.schema import Start

# limits define no case: raising them is what resuming is for
FREE = frozenset(each.name for each in fields(Request) if each.metadata.get("limit"))

# causes for which the code that ran may not be the reason
NOT_ITS_OWN = (Cause.KILLED, Cause.OVERTIME)
MORE = 1.1  # times the memory, from which what ran out of it is tried again


def completed_runs(sweep: Sweep, request: Request | None = None) -> list[Run]:
    """The runs that need not be repeated under the limits of a request, by default the sweep's own.

    Cases for which no process ran are not done: a larger budget, limit or machine may reach them.
    Nor are those that ended at a limit which is larger now than in their own session, or whose
    process was killed, perhaps by someone else, or as it took far longer than was predicted,
    perhaps on a machine that was slow just then.
    """
    now = request or sweep.request
    return [
        run
        for run in sweep.runs
        if run.elapsed_s
        and run.cause not in NOT_ITS_OWN
        and not ended_at_smaller_limit(run, sweep.asked.get(run.origin, sweep.request), now)
    ]


def ended_at_smaller_limit(run: Run, before: Request, now: Request) -> bool:
    """Whether a run ended at a limit of time or memory and there is more of it now."""
    if run.outcome is Outcome.TIMEOUT:
        return now.case_timeout_s is None or run.elapsed_s < now.case_timeout_s
    if run.outcome is Outcome.OOM:
        old_bytes = before.settings.memory_limit_bytes
        new_bytes = now.settings.memory_limit_bytes
        return old_bytes is not None and (new_bytes is None or new_bytes > MORE * old_bytes)
    return False


def has_smaller_limits(request: Request, fields: Mapping[str, Any]) -> bool:
    """Whether a limit among these fields leaves more to be done than that of a request.

    No limit leaves most; the closer a precision is, the more rounds it takes.
    """
    for name in FREE & fields.keys():
        before = getattr(request, name)
        now = fields[name]
        if before is None or now == before:
            continue
        closer = name == "precision"
        if now is None or (now < before if closer else now > before):
            return True
    return False


def refuse_other(sweep: Sweep, start: Start) -> None:
    """Raises `DifferentSweep` unless request, shard, machine and version are those of the sweep.

    A journal of several shards is one of a whole sweep.
    """
    stored = defining(sweep.request)
    new = defining(start.request)
    if sweep.sessions:
        stored |= {"shard": sweep.shard or "all", **machine(sweep.sessions[0])}
        new |= {"shard": start.shard or "all", **machine(start.environment)}
    refuse_differences(sweep.name, stored, new)


def refuse_other_request(
    name: str, before: Request, now: Request, *, same_device: bool = False
) -> None:
    """Raises `DifferentSweep` if a request asks for other cases than that of a sweep.

    name:        of the sweep
    before:      what it was asked for
    now:         what is asked
    same_device: whether the kind of device is compared too, as no machine is
    """
    stored = defining(before)
    new = defining(now)
    if same_device:
        stored["device"] = before.device
        new["device"] = now.device
    refuse_differences(name, stored, new)


def refuse_differences(name: str, stored: Mapping[str, object], new: Mapping[str, object]) -> None:
    """Raises `DifferentSweep` if what defines the named sweep is not what is asked for now."""
    if differing := differences(stored, new):
        raise DifferentSweep(
            f"cannot resume {name!r} as another sweep ({'; '.join(differing)}); "
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


def machine_differences(first: Environment, here: Environment) -> list[str]:
    """In what this machine differs from the first, as `device: cpu there, NVIDIA H100 here`."""
    return differences(machine(first), machine(here))


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
