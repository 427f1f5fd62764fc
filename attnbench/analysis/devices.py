"""Sweeps of several devices as curves side by side, each named after its device."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from attnbench.analysis.summary import Frame, summary
from attnbench.errors import DifferentSweep
from attnbench.records import Sweep

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
                f"{sweeps[0].name!r} and {other.name!r} do not belong into one figure"
                f" ({'; '.join(differences)}); report each by itself"
            )
    frames = []
    for sweep, device in zip(sweeps, device_names(sweeps), strict=True):
        cases = summary(replace(sweep, request=sweeps[0].request))  # times of the same tokens
        frames.append(cases.assign(series=cases["series"] + AT + device))
    return pd.concat(frames, ignore_index=True)
