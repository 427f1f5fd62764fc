"""What a resumed sweep still has to do, and whether it is the same sweep."""

from dataclasses import asdict
from typing import Any

from attnbench.errors import DifferentSweep
from attnbench.records import Environment, Part, Request, Sweep

# these bound the work and define no case: raising them is what resuming is for
FREE = ("rounds", "budget_s", "case_timeout_s", "memory_limit_bytes")


def done(sweep: Sweep) -> frozenset[tuple[str, Part, int]]:
    """Case key, part and round of every run that need not be made again.

    What no process ran for is not done: a larger budget, limit or machine may reach it.
    """
    return frozenset((run.case, run.part, run.round) for run in sweep.runs if run.elapsed_s)


def same_request(there: Request, here: Request) -> list[str]:
    """How the stored request differs from this one, as text; empty if a resume may go on."""
    return _differences(_asked(there), _asked(here))


def same_machine(there: Environment, here: Environment) -> list[str]:
    """How the stored machine differs from this one, as text; empty if times may be compared."""
    return _differences(asdict(there.fingerprint), asdict(here.fingerprint))


def refuse_other(sweep: Sweep, request: Request, environment: Environment) -> None:
    """Raises `DifferentSweep` unless request and machine are those of the sweep."""
    found = same_request(sweep.request, request)
    if sweep.sessions:
        found += same_machine(sweep.sessions[0], environment)
    if found:
        raise DifferentSweep(
            f"cannot resume {sweep.name!r} as another sweep ({'; '.join(found)}); "
            "repeat its options on its machine, or sweep into another folder with --out"
        )


def _asked(request: Request) -> dict[str, Any]:
    values = {**asdict(request), **asdict(request.settings)}
    return {name: values[name] for name in values if name not in ("settings", *FREE)}


def _differences(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    pairs = ((name, _text(there[name]), _text(here[name])) for name in there)
    return [f"{name}: {old} there, {new} here" for name, old, new in pairs if old != new]


def _text(value: Any) -> str:
    """Lists are compared without regard to order."""
    return ",".join(map(str, sorted(value))) if isinstance(value, tuple) else str(value)
