"""Series that are shown, but not ranked, since a run showed that they do not do their work."""

from collections.abc import Mapping, Sequence

import pandas as pd

from attnbench.records import Run, notes, units

LEAK = 1 << 16  # bytes that an iteration leaves allocated, above which a series leaks
SHOWS_LAUNCHES = "its time includes launches, which could not be hidden"  # why it has no rank


def suspects(
    runs: Sequence[Run], names: Mapping[str, str], too_fast: Sequence[str]
) -> dict[str, str]:
    """The signs of each series, by its name; those without any are left out or empty."""
    signs_by_series: dict[str, dict[str, None]] = {}
    kept: dict[str, float] = {}
    for run in runs:
        name = names.get(run.case, run.case)
        signs_by_series.setdefault(name, {}).update(
            dict.fromkeys(run.notes.get(notes.Note.SUSPECT, "").split("; "))
        )
        kept[name] = max(kept.get(name, 0.0), run.values.get("kept_bytes", 0.0))
    for name, kept_bytes in kept.items():
        if kept_bytes > LEAK:
            signs_by_series[name][f"keeps {units.size(kept_bytes)} with each iteration"] = None
    for name in too_fast:
        signs_by_series.setdefault(name, {})["took less time than reading its input takes"] = None
    return {name: "; ".join(filter(None, signs)) for name, signs in signs_by_series.items()}


def rankable(cases: pd.DataFrame) -> pd.DataFrame:
    """The cases that are ranked by their times."""
    return without_launches(cases[cases["suspect"] == ""])


def without_launches(cases: pd.DataFrame) -> pd.DataFrame:
    """The cases without times that include a GPU's launches, which could not be hidden.

    A curve on which they begin to show bends there, whatever the mechanism does.
    """
    names = map(str, cases.columns)
    times = [name for name in names if name == "token_s" or name.startswith("time_")]
    shown = cases["shows_launches"].astype(bool)
    return cases.assign(**{name: cases[name].mask(shown) for name in times})
