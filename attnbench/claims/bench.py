"""What a sweep measured, as the predicates of claims ask for it.

Costs are of one sequence, so that batches that shrink with length can be compared, and their
logarithms carry errors. Memory is the allocated peak above what was alive before the iteration
(parameters, inputs), or the whole peak where a sweep holds no other; it is exact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from attnbench.analysis.estimate import LEVEL
from attnbench.analysis.ratios import Ratios
from attnbench.analysis.student import quantile
from attnbench.analysis.summary import summary
from attnbench.claims.claim import Asked, Lengths, Sign, Subject
from attnbench.claims.names import PLAIN, fits_options, forms, full_options
from attnbench.records import CardFacts, Level, Option, Outcome, Sweep

# a stated length stands for a measured one this near: 1,000 for 1,024, and 4,000 for 4,096
NEAR = 1.1

# under which a run notes the kernel that attention ran in
KERNEL = "attention_kernel"


class OutOfScope(Exception):
    """A sweep does not speak of what a claim asserts; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One series in one mode.

    `rows`: form, outcome and reason by length; `costs`: the logarithm of each quantity with its
    error and degrees of freedom (y, se, df), at the lengths where it is known.
    """

    series: str
    mechanism: str
    mode: str
    options: Mapping[str, Option]
    kernels: frozenset[str]  # that attention ran in, where the sweep recorded it
    rows: pd.DataFrame
    costs: Mapping[str, pd.DataFrame]
    ratios: Ratios

    def over(self, other: "Curve", quantity: str) -> pd.DataFrame:
        """Log ratios to another curve at the lengths of both; times of series that took turns
        are compared lap by lap."""
        found = difference(self.logs(quantity), other.logs(quantity))
        if quantity != "time":
            return found
        return interval(self.ratios.refine(found, self.series, other.series, self.mode))

    def logs(self, quantity: str) -> pd.DataFrame:
        """Columns y, se and df of a quantity, at the lengths where it is known."""
        return self.costs[quantity]

    @property
    def fitting(self) -> list[int]:
        """The lengths that were measured."""
        return [int(n) for n in self.costs["time"].index]

    @property
    def lost(self) -> list[int]:
        """The lengths at which memory ran out."""
        return [int(n) for n in self.rows.index[self.rows["outcome"] == Outcome.OOM]]


@dataclass(frozen=True)
class Bench:
    """A sweep ready to be asked."""

    sweep: Sweep

    @cached_property
    def cases(self) -> pd.DataFrame:
        """The summary of the sweep."""
        return summary(self.sweep)

    @cached_property
    def ratios(self) -> Ratios:
        """The ratios of times of series that took turns."""
        return Ratios(self.sweep)

    @property
    def cards(self) -> dict[str, CardFacts]:
        """The stored facts of each mechanism."""
        return {card.mechanism: card for card in self.sweep.cards}

    @property
    def device(self) -> str:
        """What the sweep ran on."""
        return " and ".join(dict.fromkeys(session.device for session in self.sweep.sessions))

    @property
    def level(self) -> Level:
        """How much was measured around each mechanism."""
        return self.sweep.request.level

    def modes(self, asked: Asked) -> tuple[str, ...]:
        """The modes of the sweep that a claim's mode stands for. Raises `OutOfScope`."""
        there = tuple(dict.fromkeys(str(line.case.workload.mode) for line in self.sweep.plan))
        if not there:
            raise OutOfScope("the sweep planned nothing")
        if asked is Asked.GENERATION:
            raise OutOfScope("no sweep generates token by token")
        if asked is Asked.UNPRINTED:
            return there
        if asked.value not in there:
            raise OutOfScope(f"the sweep holds no {asked}")
        return (asked.value,)

    def curve(self, subject: Subject, mode: str) -> Curve:
        """The best curve of a subject. Raises `OutOfScope` saying what the sweep has instead.

        Of several the one in the claim's best form comes first, then the one measured at the most
        lengths, then the first of the plan.
        """
        found = self.matching(subject, mode)
        if not found:
            raise OutOfScope(self._absent(subject, mode))
        return found[0]

    def matching(self, subject: Subject, mode: str) -> list[Curve]:
        """Every curve of a subject in a mode, best first."""
        wanted = forms(subject)
        ranked = []
        for curve in self.curves:
            if (curve.mechanism, curve.mode) != (subject.mechanism, mode):
                continue
            there = set(curve.rows["form"])
            allowed = wanted is None or there <= set(wanted)
            if subject.form == "flash" and any(PLAIN in kernel for kernel in curve.kernels):
                continue
            if allowed and fits_options(subject, curve.options):
                rank = 0 if wanted is None else max(map(wanted.index, there))
                ranked.append((rank, -len(curve.fitting), curve))
        return [curve for *_, curve in sorted(ranked, key=lambda found: found[:2])]

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """Every series in every mode, in the order of the plan."""
        if not self.sweep.plan:
            return ()
        options = {line.case.key: full_options(line.case, self.cards) for line in self.sweep.plan}
        groups = self.cases.groupby(["mode", "series"], sort=False)
        return tuple(
            _curve(rows, options[rows["key"].iloc[0]], self._kernels(set(rows["key"])), self.ratios)
            for _, rows in groups
        )

    def _kernels(self, cases: set[str]) -> frozenset[str]:
        notes = [run.notes for run in self.sweep.runs if run.case in cases]
        return frozenset(note[KERNEL] for note in notes if KERNEL in note)

    @property
    def series(self) -> tuple[str, ...]:
        """The name of each curve, in the order that gives them their looks."""
        return tuple(dict.fromkeys(curve.series for curve in self.curves))

    def _absent(self, subject: Subject, mode: str) -> str:
        there = [
            c.series for c in self.curves if (c.mechanism, c.mode) == (subject.mechanism, mode)
        ]
        if not there:
            return f"{subject.mechanism} is not in the sweep"
        return f"the sweep has {', '.join(there)}, not {subject}"


def chosen(lengths: Lengths | None, measured: Sequence[int]) -> list[int]:
    """The measured lengths that a claim speaks of. Raises `OutOfScope` if there are none."""
    found = [n for n in measured if lengths is None or _holds(lengths, n, measured)]
    if not found:
        if not measured:
            raise OutOfScope("no length was measured on both sides")
        span = f"measured from {min(measured):,} to {max(measured):,}"
        raise OutOfScope(f"nothing {str(lengths).removeprefix('for ')}: {span}")
    return found


def stated(lengths: Lengths | None) -> int | None:
    """How many lengths a claim names one by one, or None for a range."""
    listed = lengths is not None and lengths.sign in (Sign.AT, Sign.ONE_OF)
    return len(lengths.values) if lengths is not None and listed else None


def nearest(length: int, measured: Sequence[int]) -> int | None:
    """The measured length that a stated one stands for, or None if none is near enough."""
    best = min(measured, key=lambda n: abs(np.log(n / length)), default=None)
    return None if best is None or abs(np.log(best / length)) > np.log(NEAR) else best


def interval(logs: pd.DataFrame) -> pd.DataFrame:
    """Columns low and high beside y, se and df: the 95 % interval; NaN where se is."""
    factors = {df: quantile(LEVEL, df) for df in set(logs["df"].dropna())}
    halves = [
        0.0 if se == 0 else factors.get(df, np.nan) * se
        for se, df in zip(logs["se"], logs["df"], strict=True)
    ]
    y = logs["y"].to_numpy(float)
    columns = {name: logs[name].to_numpy(float) for name in ("y", "se", "df")}
    return pd.DataFrame({**columns, "low": y - halves, "high": y + halves}, index=logs.index)


def difference(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Log of a over b at the lengths of both; the fewer degrees of freedom count."""
    lengths, i, j = np.intersect1d(a.index, b.index, return_indices=True)
    one, other = a.to_numpy()[i], b.to_numpy()[j]
    columns = {
        "y": one[:, 0] - other[:, 0],
        "se": np.hypot(one[:, 1], other[:, 1]),
        "df": np.minimum(one[:, 2], other[:, 2]),
    }
    return interval(pd.DataFrame(columns, index=lengths))


def _holds(lengths: Lengths, n: int, measured: Sequence[int]) -> bool:
    first, last = lengths.values[0], lengths.values[-1]
    match lengths.sign:
        case Sign.AT | Sign.ONE_OF:
            return n in [nearest(value, measured) for value in lengths.values]
        case Sign.WITHIN:
            return first / NEAR <= n <= last * NEAR
        case Sign.AT_LEAST:
            return n >= first / NEAR
        case Sign.ABOVE:
            return n > first
        case Sign.AT_MOST:
            return n <= last * NEAR
    raise AssertionError(f"lengths have no sign {lengths.sign}")


def _curve(
    rows: pd.DataFrame, options: Mapping[str, Option], kernels: frozenset[str], ratios: Ratios
) -> Curve:
    rows = rows.sort_values("seq_len").drop_duplicates("seq_len").set_index("seq_len")
    batch = rows["batch"]
    peak = rows["allocated_delta_bytes"].where(rows["allocated_delta_bytes"] > 0)
    peak = peak if peak.notna().any() else rows["allocated_peak_bytes"]
    costs = {
        "time": rows["time_s"] / batch,
        "memory": peak / batch,
        "core_flops": rows["core_flops"] / batch / rows["layers"],
        "projection_flops": rows["projection_flops"] / batch / rows["layers"],
    }
    exact = pd.DataFrame({"time_log_se": 0.0, "time_df": np.inf}, index=rows.index)
    logs = {name: _logs(cost, rows if name == "time" else exact) for name, cost in costs.items()}
    series, mechanism, mode = (str(rows[name].iloc[0]) for name in ("series", "mechanism", "mode"))
    return Curve(
        series=series,
        mechanism=mechanism,
        mode=mode,
        options=options,
        kernels=kernels,
        rows=rows[["form", "outcome", "reason"]],
        costs=logs,
        ratios=ratios,
    )


def _logs(cost: pd.Series, errors: pd.DataFrame) -> pd.DataFrame:
    known = (cost > 0).to_numpy()
    columns = {
        "y": np.log(cost.to_numpy(float), where=known, out=np.full(len(cost), np.nan)),
        "se": errors["time_log_se"].to_numpy(float),
        "df": errors["time_df"].to_numpy(float),
    }
    return pd.DataFrame(columns, index=cost.index)[known]
