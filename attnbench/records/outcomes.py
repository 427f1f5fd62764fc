"""How a case ended, or why it was not started: one table of what each means."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from attnbench.records.run import MISSING, Cause, Outcome


@dataclass(frozen=True, kw_only=True)
class Ending:
    """One row of the table.

    `phrase` says why a case was not measured, in the cell of a table. A `limit`, of memory or time,
    bounds the lengths of a series; the others say nothing about it. Where a case ended so, longer
    ones of its curve are not tried, for the cause `beyond`, as it `already` did.
    """

    phrase: str
    limit: bool = False
    beyond: Cause | None = None
    already: str = ""


# by outcome or cause: the two that share a name share a row
OUTCOMES: Mapping[str, Ending] = MappingProxyType({
    Outcome.OK: Ending(phrase="not measured"),  # only the memory is missing
    Outcome.OOM: Ending(
        phrase="out of memory", limit=True, beyond=Cause.OOM, already="ran out of memory"
    ),
    Outcome.TIMEOUT: Ending(
        phrase="timed out", limit=True, beyond=Cause.TIMEOUT, already="timed out"
    ),
    Outcome.CRASHED: Ending(phrase="crashed"),
    Outcome.FAILED: Ending(phrase="failed"),
    Outcome.UNSUPPORTED: Ending(phrase="cannot run"),
    Outcome.SKIPPED: Ending(phrase="skipped"),
    MISSING: Ending(phrase="not run"),
    Cause.BUDGET: Ending(phrase="over budget"),
    Cause.CASE_TIMEOUT: Ending(phrase="over time limit", limit=True),
    Cause.MEMORY_LIMIT: Ending(phrase="over memory", limit=True),
    # no limit that anyone set, and the machine may have been slow: resuming tries it again
    Cause.OVERTIME: Ending(
        phrase="over prediction", beyond=Cause.OVERTIME, already="took far longer than predicted"
    ),
    Cause.KILLED: Ending(phrase="killed"),
})  # fmt: skip


def ending(outcome: str, cause: str) -> Ending:
    """The row of a case that ended so: that of its cause, or else of its outcome.

    What the table does not have was not run.
    """
    return OUTCOMES.get(cause or outcome, OUTCOMES[MISSING])
