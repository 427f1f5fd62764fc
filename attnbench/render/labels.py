"""What cases share goes into the title of a table, the rest into its rows."""

from collections.abc import Sequence

from attnbench.records import Workload


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
