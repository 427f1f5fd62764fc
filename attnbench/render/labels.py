"""Cases in words: what several share, and why one was not measured."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from attnbench.analysis.summary import MISSING
from attnbench.records import Cause, Outcome, Workload

# in the cell of a table, and after "5 cases"
ENDINGS: Mapping[str, tuple[str, str]] = MappingProxyType({
    Outcome.OK: ("not measured", "were not measured in full"),  # only the memory is missing
    Outcome.OOM: ("out of memory", "ran out of memory"),
    Outcome.TIMEOUT: ("timed out", "timed out"),
    Outcome.CRASHED: ("crashed", "crashed"),
    Outcome.FAILED: ("failed", "failed"),
    Outcome.UNSUPPORTED: ("cannot run", "cannot run here"),
    Outcome.SKIPPED: ("skipped", "did not start"),
    MISSING: ("not run", "did not run before the sweep ended"),
})  # fmt: skip
CAUSES: Mapping[str, tuple[str, str]] = MappingProxyType({
    Cause.BUDGET: ("over budget", "did not fit into the time budget"),
    Cause.CASE_TIMEOUT: ("over time limit", "would have exceeded the time limit of a case"),
    Cause.MEMORY_LIMIT: ("exceeds memory", "would have exceeded memory"),
    Cause.OOM: ("out of memory", "did not start, since a shorter length ran out of memory"),
    Cause.TIMEOUT: ("timed out", "did not start, since a shorter length timed out"),
})  # fmt: skip


def why(outcome: str, cause: str) -> str:
    """Why a case was not measured, in two or three words; never empty."""
    return (CAUSES.get(cause) or ENDINGS.get(outcome) or ENDINGS[MISSING])[0]


def happened(outcome: str, cause: str) -> str:
    """Why cases were not measured, as what they did: `ran out of memory`."""
    return (CAUSES.get(cause) or ENDINGS.get(outcome) or ENDINGS[MISSING])[1]


def apart(workloads: Sequence[Workload]) -> tuple[str, list[str]]:
    """`D256-H16/model/float32/cpu`, which all share, and of each what it does not share.

    Batch, length and mode are left out: they have columns.
    """
    parts = [_parts(workload) for workload in workloads]
    shared = [part for part in parts[0] if all(part in other for other in parts)] if parts else []
    own = [[part for part in one if part not in shared] for one in parts]
    return _joined(shared), [_joined(one) for one in own]


def _parts(workload: Workload) -> list[str]:
    sizes, level, _, *others = str(workload).split("/")
    return [*sizes.split("-")[2:], level, *others]


def _joined(parts: Sequence[str]) -> str:
    sizes = [part for part in parts if part[:1] in "DH" and part[1:].isdecimal()]
    return "/".join(filter(None, ["-".join(sizes), *(p for p in parts if p not in sizes)]))
