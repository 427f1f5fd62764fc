"""What a resumed sweep still has to do, and whether it is the same sweep."""

from dataclasses import asdict
from typing import Any

from attnbench.errors import DifferentSweep
from attnbench.records import Environment, Part, Request, Sweep

# limits define no case: raising them is what resuming is for
FREE = ("rounds", "budget_s", "case_timeout_s", "memory_limit_bytes")


def done(sweep: Sweep) -> frozenset[tuple[str, Part, int]]:
    """Case key, part and round of every run that need not be repeated.

    Cases for which no process ran are not done: a larger budget, limit or machine may reach them.
    """
    return frozenset((run.case, run.part, run.round) for run in sweep.runs if run.elapsed_s)


def refuse_other(sweep: Sweep, request: Request, environment: Environment) -> None:
    """Raises `DifferentSweep` unless request and machine are those of the sweep."""
    differences = _differences(_asked(sweep.request), _asked(request))
    if sweep.sessions:
        stored = asdict(sweep.sessions[0].fingerprint)
        differences += _differences(stored, asdict(environment.fingerprint))
    if differences:
        raise DifferentSweep(
            f"cannot resume {sweep.name!r} as another sweep ({'; '.join(differences)}); "
            "repeat its options on its machine, or sweep into another folder with --out"
        )


def _asked(request: Request) -> dict[str, Any]:
    values = {**asdict(request), **asdict(request.settings)}
    return {name: values[name] for name in values if name not in ("settings", *FREE)}


def _differences(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    pairs = ((name, _text(stored[name]), _text(new[name])) for name in stored)
    return [f"{name}: {old} there, {now} here" for name, old, now in pairs if old != now]


def _text(value: Any) -> str:
    """The value; lists are compared regardless of order."""
    return ",".join(map(str, sorted(value))) if isinstance(value, tuple) else str(value)
