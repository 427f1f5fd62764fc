"""A sweep of several widths, heads, number types or batches, split up; devices side by side.

Whatever is compared, fitted or drawn belongs to one variant, so each is analysed as a sweep of its
own. It is named after what differs, as in the labels of cases: `D512-bfloat16`. Sweeps of several
devices become curves side by side, each named after its device.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pandas as pd

from attnbench.analysis.summary import Frame, summary
from attnbench.errors import DifferentSweep, UsageError
from attnbench.records import Request, Sweep, Workload

LETTERS = MappingProxyType({"width": "D", "heads": "H", "dtype": "", "batch": "B"})


def variants(sweep: Sweep) -> Mapping[str, Sweep]:
    """The part of the sweep of each variant, by its name; the name of a single one is empty."""
    each = sweep.request.each
    differing = [axis for axis in LETTERS if len({getattr(single, axis) for single in each}) > 1]
    return {
        "-".join(f"{LETTERS[axis]}{getattr(single, axis)}" for axis in differing): part(
            sweep, single
        )
        for single in each
    }


def variant(sweep: Sweep, name: str | None) -> Sweep:
    """The part of the sweep of one variant, which only one with several needs a name for.

    Raises `UsageError` that lists the names.
    """
    parts = variants(sweep)
    if name is None and len(parts) == 1:
        return sweep
    if name not in parts or not name:
        what = f"has several variants, {', '.join(parts)}" if len(parts) > 1 else "has no variants"
        way_out = "choose one with --at" if len(parts) > 1 else "leave out --at"
        raise UsageError(f"the sweep {sweep.name!r} {what}; {way_out}")
    return parts[name]


def part(sweep: Sweep, single: Request) -> Sweep:
    """The part of the sweep that this request alone would have measured."""
    if single == sweep.request:
        return sweep
    plan = tuple(planned for planned in sweep.plan if belongs(planned.case.workload, single))
    keys = {planned.case.key for planned in plan}
    sessions = sweep.sessions
    if single.dtype != sweep.request.dtype:  # the peak was measured in the first type
        sessions = tuple(replace(session, matmul_flops=None) for session in sessions)
    return replace(
        sweep,
        request=single,
        sessions=sessions,
        plan=plan,
        runs=tuple(run for run in sweep.runs if run.case in keys),
    )


def belongs(workload: Workload, single: Request) -> bool:
    """Whether a workload is of this request."""
    sizes = (workload.width, workload.heads, workload.dtype)
    return sizes == (single.width, single.heads, single.dtype) and single.batch in (
        None,
        workload.batch,
    )


def joined(cases: Iterable[Frame]) -> Frame:
    """The cases of several variants one below the other."""
    return pd.concat(list(cases), ignore_index=True)


AT = " @ "  # between a series and its device

# what has to agree for a series to be the same on each device
SAME = (
    *("level", "dtype", "width", "heads", "layers", "padding", "causal", "dropout"),
    *("share_layers", "reversible"),
)


def device_names(sweeps: Sequence[Sweep]) -> list[str]:
    """The device of each sweep, numbered where several have the same one."""
    names = [sweep.sessions[0].device if sweep.sessions else "unknown device" for sweep in sweeps]
    uses = Counter(names)
    return [
        name if uses[name] == 1 else f"{name} ({names[:i].count(name) + 1})"
        for i, name in enumerate(names)
    ]


def side_by_side(sweeps: Sequence[Sweep]) -> Frame:
    """The `summary` of all sweeps, with series such as `transformer:sdpa @ NVIDIA H100`.

    Raises `DifferentSweep` unless they measured the same model and dtype.
    """
    for other in sweeps[1:]:
        pairs = ((n, getattr(sweeps[0].request, n), getattr(other.request, n)) for n in SAME)
        differences = [f"{name}: {a} and {b}" for name, a, b in pairs if a != b]
        if differences:
            raise DifferentSweep(
                f"{sweeps[0].name!r} and {other.name!r} do not belong in one figure"
                f" ({'; '.join(differences)}); report each separately"
            )
    frames = []
    for sweep, device in zip(sweeps, device_names(sweeps), strict=True):
        cases = summary(replace(sweep, request=sweeps[0].request))  # times of the same tokens
        frames.append(cases.assign(series=cases["series"] + AT + device))
    return pd.concat(frames, ignore_index=True)
