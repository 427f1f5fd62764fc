"""Published curves beside measured ones, as shapes: each is 1 at one length that both reach."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from attnbench.claims.bench import Bench, Curve, interval
from attnbench.claims.claim import Subject
from attnbench.claims.data import published
from attnbench.records import Option

# curves are 1 here, or at the nearest length that both reach: short enough that most papers and
# machines hold softmax attention there, long enough that starting costs do not hide it
NORMAL = 1024


@dataclass(frozen=True, kw_only=True)
class Source:
    """One published quantity: where it is printed, and what it is compared with here.

    `gain`: the value is of the Transformer's cost over the mechanism's, not a cost itself.
    """

    table: str
    metric: str
    quantity: str
    mode: str
    gain: bool = False


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One mechanism: published values and measured ones with their band, each 1 at `at`."""

    series: str
    printed: str  # which published curve, if the table has several: `rank=128`
    at: float
    published: pd.Series
    measured: pd.DataFrame  # value, low, high by length


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """The panels of one published quantity."""

    title: str
    hardware: str
    panels: tuple[Panel, ...]


# file name of the figure: what it holds, and its quantities
SOURCES: tuple[tuple[str, str, tuple[Source, ...]], ...] = (
    (
        "lra",
        "Long Range Arena, Table 2",
        (
            Source(table="lra_table2", metric="steps_per_s", quantity="time", mode="training"),
            Source(table="lra_table2", metric="GB", quantity="memory", mode="training"),
        ),
    ),
    (
        "linformer",
        "Linformer, Table 3",
        (
            Source(
                table="linformer_table3",
                metric="speedup",
                quantity="time",
                mode="inference",
                gain=True,
            ),
            Source(
                table="linformer_table3",
                metric="memory_saving",
                quantity="memory",
                mode="inference",
                gain=True,
            ),
        ),
    ),
    (
        "flash",
        "FlashAttention, Tables 18, 20 and 21",
        (
            Source(table="flashattention_forward", metric="ms", quantity="time", mode="inference"),
            Source(
                table="flashattention_forward_backward",
                metric="ms",
                quantity="time",
                mode="training",
            ),
            Source(table="flashattention_memory", metric="MB", quantity="memory", mode="training"),
        ),
    ),
    (
        "nystromformer",
        "Nyströmformer, Table 1",
        (
            Source(table="nystromformer_table1", metric="ms", quantity="time", mode="inference"),
            Source(table="nystromformer_table1", metric="MB", quantity="memory", mode="inference"),
        ),
    ),
)


def overlay(bench: Bench, source: Source) -> Overlay | None:
    """The published quantity beside the sweep's curves, or None if they share no mechanism."""
    rows = published(source.table)
    rows = rows[(rows["metric"] == source.metric) & ~rows["note"].str.contains("suspected slip")]
    panels = tuple(_panels(bench, source, rows))
    if not panels:
        return None
    hardware = str(rows["hardware"].iloc[0])
    return Overlay(title=_title(bench, source), hardware=hardware, panels=panels)


def _title(bench: Bench, source: Source) -> str:
    """`Time of a sequence in training`, or `Speed-up over transformer:eager in inference`."""
    what = f"{source.quantity.capitalize()} of a sequence"
    if source.gain:
        ours = _softmax(bench, source.mode)[0].series
        what = "Speed-up" if source.quantity == "time" else "Memory saving"
        what += f" over {ours}"
    return f"{what} in {source.mode}"


def _softmax(bench: Bench, mode: str) -> list[Curve]:
    """Curves of softmax attention, the authors' own kind first."""
    eager = bench.matching(Subject(mechanism="transformer", form="eager"), mode)
    return eager or bench.matching(Subject(mechanism="transformer"), mode)


def _panels(bench: Bench, source: Source, rows: pd.DataFrame) -> Iterator[Panel]:
    softmax = _softmax(bench, source.mode)
    if source.gain and not softmax:
        return
    for (mechanism, form), lines in rows.groupby(["mechanism", "form"], sort=False):
        # no paper but FlashAttention's says which form it ran: any of ours is that mechanism
        told = str(form) if mechanism == "transformer" else None
        for curve in bench.matching(Subject(mechanism=str(mechanism), form=told), source.mode):
            printed, line = _nearest(lines, curve.options)
            logs = curve.logs(source.quantity)
            if source.gain:
                logs = softmax[0].over(curve, source.quantity)
            panel = _panel(curve, printed, _published(line, source), interval(logs))
            if panel is not None:
                yield panel


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


def _published(lines: pd.DataFrame, source: Source) -> pd.Series:
    """Log values by length; a rate is turned into a cost."""
    known = lines.dropna(subset=["length", "value"]).sort_values("length")
    logs = np.log(known["value"].to_numpy(float))
    sign = -1 if source.metric == "steps_per_s" else 1
    return pd.Series(sign * logs, index=known["length"].to_numpy(float))


def _panel(curve: Curve, printed: str, theirs: pd.Series, ours: pd.DataFrame) -> Panel | None:
    """Both curves as shapes, or None if they do not overlap."""
    if len(theirs) < 2 or len(ours) < 2:
        return None
    low, high = max(theirs.index[0], ours.index[0]), min(theirs.index[-1], ours.index[-1])
    if low >= high:
        return None
    at = float(np.clip(NORMAL, low, high))
    y = ours["y"]
    base = _between(y, at)
    measured = pd.DataFrame(
        {
            name: np.exp(ours[column] - base)
            for name, column in (("value", "y"), ("low", "low"), ("high", "high"))
        }
    )
    return Panel(
        series=curve.series,
        printed=printed,
        at=at,
        published=np.exp(theirs - _between(theirs, at)),
        measured=measured,
    )


def _between(logs: pd.Series, at: float) -> float:
    """The value at a length, interpolated in log–log."""
    return float(np.interp(np.log(at), np.log(logs.index.to_numpy(float)), logs.to_numpy(float)))
