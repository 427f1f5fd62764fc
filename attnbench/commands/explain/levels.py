"""Races two mechanisms at one length, at each level: a core, an attention layer, a whole model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from attnbench.errors import CannotRun, UsageError
from attnbench.records import Level, Sweep, modes, storage
from attnbench.running import session
from attnbench.running.plan import Plan, plan
from attnbench.running.request.options import flag, read
from attnbench.running.request.requests import request
from attnbench.running.session import measuring_server
from attnbench.running.sweep import Progress


def at_levels(
    a: str,
    b: str,
    length: int,
    options: Mapping[str, Any],
    observe: Callable[[Progress], None] = lambda progress: None,
) -> tuple[Sweep, ...]:
    """A short sweep of both mechanisms at each level that the mode has.

    a, b: mechanisms, as in `--models`.
    length: of the sequences, N.
    options: typed values of options of a sweep, by name; each level has an equal part of the
        budget.
    observe: called as a race goes on.
    Raises `UsageError` unless they mean one case of each, and `CannotRun` if these run at no level.
    """
    for name in ("width", "heads", "dtype"):
        if len(values := options.get(name) or ()) > 1:
            listed = ",".join(map(str, values))
            raise UsageError(f"{flag(name)} {listed}: give one; explain compares two cases")
    pair_options = {**options, **read({"models": f"{a},{b}", "lengths": length})}
    if len(modes_ := pair_options.get("mode", modes.BOTH)) > 1:
        raise UsageError("explain takes one mode: " + " or ".join(modes_))
    only = modes.find(modes_[0]).only_level
    levels = [only] if only else [*Level]
    requests = [request({**pair_options, "level": level}) for level in levels]
    settings = requests[0].settings
    with (
        storage.TemporaryFolder() as folder,
        measuring_server(settings.threads, settings.seed) as server,
    ):
        plans = [plan(requested, server) for requested in requests]
        refuse(plans)
        sweeps = list[Sweep]()
        for level, requested, planned in zip(levels, requests, plans, strict=True):
            budget_s = requested.budget_s and requested.budget_s / len(levels)
            part = replace(requested, budget_s=budget_s)
            with session.measure(part, planned, server, folder / level, observe=observe) as journal:
                sweeps.append(journal.held())
        return tuple(sweeps)


def refuse(plans: Sequence[Plan]) -> None:
    """Raises `UsageError` unless each has two cases, and `CannotRun` if these run at no level."""
    for planned in plans:
        if len(names := [one.case.series for one in planned.cases]) != 2:
            raise UsageError(f"explain compares two cases; these are {', '.join(names)}")
    refused = [[one for one in planned.cases if one.refusal] for planned in plans]
    if all(refused):
        raise CannotRun(f"{refused[-1][0].case.series}: {refused[-1][0].refusal}")
