"""What papers print, as it is shipped, and published curves laid over measured ones.

Published and measured values are compared as shapes: each curve is 1 at a length that both reach.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TypeVar

import msgspec
import numpy as np
import pandas as pd

from attnbench.analysis.curves import LogCurve
from attnbench.claims.bench import Bench, Curve
from attnbench.claims.claim import Quantity, Subject
from attnbench.records import Mode, Option

# curves are 1 here, or at the nearest length that both reach: short enough that most papers and
# machines hold softmax attention there, long enough that starting costs do not hide it
NORMAL = 1024

Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True)
class PrintedCost:
    """A line of a paper's table of complexity.

    `power` is the exponent of N that its print says with all other letters held fixed; `log` adds a
    logarithm. A slip is a place where the print contradicts its own text or leaves a cost out.
    Only the survey prints `decode`, yes or no, and the family.
    """

    table: str
    source: str
    mechanism: str
    name: str
    printed: str
    power: float
    log: bool
    decode: str
    family: str
    slip: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """One published quantity: its figure here, where it is printed, what it is compared with.

    `gain`: the value is of the Transformer's cost over the mechanism's, not a cost itself.
    """

    figure: str
    title: str
    table: str
    metric: str
    quantity: Quantity
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


def printed_costs() -> tuple[PrintedCost, ...]:
    """The papers' tables of complexity, line by line."""
    return _rows("complexity.csv", PrintedCost)


def sources() -> tuple[Source, ...]:
    """Every published quantity that is drawn, those of one figure together."""
    return _rows("overlays.csv", Source)


def table(name: str) -> pd.DataFrame:
    """The measurements of one table, `lra_table2`: one number a row, `value` NaN for `oom`.

    Columns: source, table, hardware, mechanism, form, length, metric, value, note.
    """
    frame = pd.read_csv(io.StringIO(shipped_text(f"{name}.csv")), keep_default_na=False)
    for column in ("length", "value"):
        frame[column] = pd.to_numeric(frame[column], errors="coerce").astype(float)
    return frame


def shipped_text(name: str) -> str:
    """A file of published data."""
    return files("attnbench").joinpath("published", name).read_text(encoding="utf-8")


def overlay(bench: Bench, source: Source) -> Overlay | None:
    """The published quantity and the sweep's curves, or None if they share no mechanism."""
    rows = table(source.table)
    rows = rows[(rows["metric"] == source.metric) & ~rows["note"].str.contains("suspected slip")]
    softmax = bench.matching(Subject(mechanism="transformer", form="eager"), source.mode)
    softmax = softmax or bench.matching(Subject(mechanism="transformer"), source.mode)
    if source.gain and not softmax:
        return None
    baseline = softmax[0] if source.gain else None
    panels = tuple(_panels(bench, source, rows, baseline))
    if not panels:
        return None
    what = f"{source.quantity.capitalize()} of a sequence"
    if baseline is not None:
        gain = "Speed-up" if source.quantity is Quantity.TIME else "Memory saving"
        what = f"{gain} over {baseline.series}"
    hardware = str(rows["hardware"].iloc[0])
    return Overlay(title=f"{what} in {source.mode}", hardware=hardware, panels=panels)


def _panels(
    bench: Bench, source: Source, rows: pd.DataFrame, baseline: Curve | None
) -> Iterator[Panel]:
    for (mechanism, form), lines in rows.groupby(["mechanism", "form"], sort=False):
        # no paper but FlashAttention's says which form it ran: any of ours is that mechanism
        named = str(form) if mechanism == "transformer" else None
        for curve in bench.matching(Subject(mechanism=str(mechanism), form=named), source.mode):
            printed, chosen = _nearest(lines, curve.options)
            # a rate is turned into a cost
            sign = -1 if source.metric == "steps_per_s" else 1
            published = LogCurve.of(chosen["length"], chosen["value"] ** sign)
            measured = curve.costs[source.quantity]
            if baseline is not None:
                measured = baseline.over(curve, source.quantity)
            at = _shared(published, measured)
            if at is not None:
                yield Panel(
                    series=curve.series,
                    printed=printed,
                    at=at,
                    published=_one_at(published, at),
                    measured=_one_at(measured, at),
                )


def _nearest(lines: pd.DataFrame, options: Mapping[str, Option]) -> tuple[str, pd.DataFrame]:
    """The published curve whose option is nearest to ours, and that option: `rank=128`."""
    pairs = lines["note"].str.extract(r"^(\w+)=(\d+)")
    if pairs[0].isna().all():
        return "", lines
    name, values = str(pairs[0].dropna().iloc[0]), pairs[1].astype(float)
    ours = options.get(name)
    wanted = float(ours) if isinstance(ours, int | float) and ours > 0 else float(values.iloc[0])
    best = min(dict.fromkeys(values.dropna()), key=lambda v: abs(np.log(v / wanted)))
    return f"{name}={best:g}", lines[values == best]


def _shared(one: LogCurve, other: LogCurve) -> float | None:
    """The length at which both curves are 1, or None if they do not overlap."""
    if len(one) < 2 or len(other) < 2:
        return None
    low, high = (
        max(one.lengths[0], other.lengths[0]),
        min(one.lengths[-1], other.lengths[-1]),
    )
    return float(np.clip(NORMAL, low, high)) if low < high else None


def _one_at(curve: LogCurve, length: float) -> LogCurve:
    """The curve over its value at a length, interpolated in log–log."""
    value = np.interp(np.log(length), np.log(curve.lengths), curve.logs)
    return replace(curve, logs=curve.logs - value)


def _rows(name: str, kind: type[Row]) -> tuple[Row, ...]:
    rows = csv.DictReader(io.StringIO(shipped_text(name)))
    return tuple(msgspec.convert(row, kind, strict=False) for row in rows)
