"""What papers published, from files: claims, numbers, and curves laid over measured ones.

Claims are rows of a CSV file; the further checks of one are rows with its id alone.

Published and measured curves are compared in shape: each is scaled to 1 at a common length.
"""

import csv
import io
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from attnbench.claims.bench import CostCurve, MeasuredSweep
from attnbench.claims.checks import CELLS, BadCheck, read_check
from attnbench.claims.claim import TIME, Check, Claim, ClaimedCost
from attnbench.errors import BadClaims
from attnbench.records import Mode, Option, Selection
from attnbench.statistics.curves import LogCurve

# curves are 1 here, or at the nearest common length: short enough for softmax attention in most
# papers and machines, long enough that fixed costs do not dominate
NORMAL = 1024

TEXTS = ("id", "source", "claim", "scope")
COLUMNS = (*TEXTS, *CELLS)
NEEDED = ("id", "claim", "predicate", "a")


@dataclass(frozen=True, kw_only=True)
class Source:
    """One published quantity: its figure here, its table, and the measured quantity.

    `gain`: the values are the Transformer's cost over the mechanism's, not costs.
    """

    figure: str
    title: str
    table: str
    metric: str
    quantity: ClaimedCost
    mode: Mode
    gain: bool


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One mechanism: its published and its measured curve, each 1 at `at`."""

    series: str
    printed: str  # which published curve, if the table has several: `rank=128`
    at: float
    published: LogCurve
    measured: LogCurve


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """The panels of one published quantity."""

    title: str
    hardware: str
    panels: tuple[Panel, ...]


def sources() -> tuple[Source, ...]:
    """Every published quantity that is drawn, grouped by figure."""
    return msgspec.convert(_rows("overlays.csv"), tuple[Source, ...], strict=False)


def table(name: str) -> pd.DataFrame:
    """The measurements of one table, such as `lra_table2`: one per row, `value` NaN for `oom`.

    Columns: source, table, hardware, mechanism, form, length, metric, value, note.
    """
    frame = pd.read_csv(io.StringIO(shipped_text(f"{name}.csv")), keep_default_na=False)
    for column in ("length", "value"):
        frame[column] = pd.to_numeric(frame[column], errors="coerce").astype(float)
    return frame


def shipped_text(name: str) -> str:
    """A file of published data."""
    return files("attnbench").joinpath("published", name).read_text(encoding="utf-8")


def overlay(bench: MeasuredSweep, source: Source) -> Overlay | None:
    """The published quantity and the sweep's curves, or None if they share no mechanism."""
    rows = table(source.table)
    rows = rows[(rows["metric"] == source.metric) & ~rows["note"].str.contains("suspected slip")]
    softmax = bench.matching(Selection(name="transformer", form="eager"), source.mode)
    softmax = softmax or bench.matching(Selection(name="transformer"), source.mode)
    if source.gain and not softmax:
        return None
    baseline = softmax[0] if source.gain else None
    panels = tuple(_panels(bench, source, rows, baseline))
    if not panels:
        return None
    label = f"{source.quantity.capitalize()} per sequence"
    if baseline is not None:
        gain = "Speed-up" if source.quantity is TIME else "Memory saving"
        label = f"{gain} over {baseline.series}"
    hardware = str(rows["hardware"].iloc[0])
    return Overlay(title=f"{label} in {source.mode}", hardware=hardware, panels=panels)


def _panels(
    bench: MeasuredSweep, source: Source, rows: pd.DataFrame, baseline: CostCurve | None
) -> Iterator[Panel]:
    for (mechanism, form), same in rows.groupby(["mechanism", "form"], sort=False):
        # only FlashAttention's paper says which form it ran, so any form matches the others
        wanted = str(form) if mechanism == "transformer" else None
        for curve in bench.matching(Selection(name=str(mechanism), form=wanted), source.mode):
            printed, chosen = _nearest(same, curve.options)
            # a rate becomes a cost
            sign = -1 if source.metric == "steps_per_s" else 1
            published = LogCurve.of(chosen["length"], chosen["value"] ** sign)
            measured = curve.costs[source.quantity]
            if baseline is not None:
                measured = baseline.over(curve, source.quantity)
            if (at := _common_length(published, measured)) is not None:
                scaled = {"published": _one_at(published, at), "measured": _one_at(measured, at)}
                yield Panel(series=curve.series, printed=printed, at=at, **scaled)


def _nearest(rows: pd.DataFrame, options: Mapping[str, Option]) -> tuple[str, pd.DataFrame]:
    """The published curve with the option closest to ours, and that option: `rank=128`."""
    pairs = rows["note"].str.extract(r"^(\w+)=(\d+)")
    if pairs[0].isna().all():
        return "", rows
    name, values = str(pairs[0].dropna().iloc[0]), pairs[1].astype(float)
    ours = options.get(name)
    wanted = float(ours) if isinstance(ours, int | float) and ours > 0 else float(values.iloc[0])
    best = min(dict.fromkeys(values.dropna()), key=lambda v: abs(np.log(v / wanted)))
    return f"{name}={best:g}", rows[values == best]


def _common_length(a: LogCurve, b: LogCurve) -> float | None:
    """The length at which both curves are 1, or None if they do not overlap."""
    if len(a) < 2 or len(b) < 2:
        return None
    low, high = max(a.lengths[0], b.lengths[0]), min(a.lengths[-1], b.lengths[-1])
    return float(np.clip(NORMAL, low, high)) if low < high else None


def _one_at(curve: LogCurve, length: float) -> LogCurve:
    """The curve divided by its value at a length, interpolated in log–log."""
    value = np.interp(np.log(length), np.log(curve.lengths), curve.logs)
    return replace(curve, logs=curve.logs - value)


def _rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(shipped_text(name))))


def shipped() -> tuple[Claim, ...]:
    """The claims that the package ships."""
    return read_claims(shipped_text("claims.csv"), "claims.csv")


def read_claims(text: str, name: str) -> tuple[Claim, ...]:
    """The claims of a CSV text, whose columns may be in any order; only those in `NEEDED` must be.

    A row with the id of one above adds a check to its claim. Raises `BadClaims` with a line for
    each row that cannot be read; `name` is the name of the file.
    """
    rows = csv.DictReader(io.StringIO(text, newline=""))
    texts, checks = dict[str, dict[str, str]](), defaultdict[str, list[Check]](list)
    lines, problems, line = dict[str, int](), list[str](), 2
    try:
        columns = sorted(rows.fieldnames or ())
        if not {*NEEDED} <= {*columns} <= {*COLUMNS} or len({*columns}) < len(columns):
            further = ", ".join(column for column in COLUMNS if column not in NEEDED)
            expected = f"expected the columns {', '.join(NEEDED)} and any of {further}"
            raise BadClaims([f"{name}, line 1: {expected}"])
        for row in rows:
            try:
                if own := _texts(row, lines):
                    texts[row["id"]], lines[row["id"]] = own, line
                checks[row["id"]].append(read_check(row))
            except BadCheck as error:
                problems.append(f"{name}, line {line}, {error}")
            line = rows.line_num + 1
    except csv.Error as error:
        problems.append(f"{name}, line {line}: {error}; expected comma-separated values")
    if not texts and not problems:
        problems = [f"{name} has no claims; expected one per row below the column names"]
    if problems:
        raise BadClaims(problems)
    return tuple(Claim(**own, checks=tuple(checks[own["id"]])) for own in texts.values())


def _texts(row: Mapping[str | None, Any], lines: Mapping[str, int]) -> dict[str, str]:
    """The texts of a new claim in a row; empty if its id is that of one of these lines."""
    if None in row or None in row.values():
        raise BadCheck("columns: expected as many as in line 1; quote cells that contain commas")
    texts = {column: row.get(column, "") for column in TEXTS}
    if line := lines.get(row["id"]):
        if any(texts[column].strip() for column in TEXTS[1:]):
            twice = f"column id: {row['id']!r} is also the id in line {line}; give each claim"
            raise BadCheck(f"{twice} its own; a further check leaves {', '.join(TEXTS[1:])} empty")
        return {}
    for column in ("id", "claim"):
        if not texts[column].strip():
            raise BadCheck(f"column {column}: empty; expected text")
    return texts
