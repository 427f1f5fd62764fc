"""Two sweeps in one table: what changed, the largest changes first."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from attnbench.analysis import Answer, Conclusion, Verdict
from attnbench.commands.compare.analysis import SweepComparison
from attnbench.records import units
from attnbench.records.metrics import TABLE
from attnbench.report import grid, names, phrases

NOTE = (
    "N are lengths at which both sweeps measured it, or one lacks it for the reason; the ratio of"
    " several is that with the median change. Where a sweep repeated no case, no time is called"
    " slower or faster, nor is one that includes a GPU's launches. If the machine was slower during"
    " one sweep, every ratio is shifted and no interval shows it: attnbench check --base measures"
    " two revisions in turns."
)
VERDICTS: Mapping[Answer, Verdict] = MappingProxyType({
    Answer.COSTS_MORE: Verdict.SLOWER,
    Answer.COSTS_LESS: Verdict.FASTER,
})  # fmt: skip


@dataclass(frozen=True)
class Change:
    """A row: a conclusion, and the metrics that have it in common."""

    conclusion: Conclusion
    metrics: tuple[str, ...]


def changes(comparison: SweepComparison) -> grid.Table:
    """A row for lengths at which a series changed alike, or is missing in one sweep."""
    shown = grid.table(
        _rows(comparison.conclusions),
        [
            grid.Column("Mechanism", lambda row: grid.words(row.conclusion.series[0]), "series"),
            grid.Column("Mode", lambda row: grid.words(row.conclusion.mode)),
            grid.Column("N", lambda row: grid.words(_lengths(row.conclusion)), "n"),
            grid.Column("Metric", lambda row: grid.words(", ".join(row.metrics)), "metrics"),
            grid.Column("Ratio", lambda row: grid.bounded(*ends(row.conclusion))),
            grid.Column("Verdict", lambda row: grid.words(verdict(row.conclusion))),
            grid.Column("Reason", lambda row: grid.words(row.conclusion.reason)),
        ],
        name="comparison",
        title="Changes from the first sweep to the second",
        note=" ".join([*_tally(comparison), NOTE]),
    )
    return names.suspects_last(shown, comparison.suspects)


def _rows(conclusions: Iterable[Conclusion]) -> Iterator[Change]:
    """What changed or is missing; several metrics that lack the same lengths have one row."""
    rows: dict[object, Change] = {}
    for one in conclusions:
        if not (one.missing or one.answer in VERDICTS):
            continue
        metric = "" if one.missing else one.quantity
        alike = one.series, one.mode, one.missing or one.scope.lengths, metric, one.reason
        label = TABLE[one.quantity].label
        metrics = rows[alike].metrics if alike in rows else ()
        rows[alike] = Change(one, (*metrics, label))
    yield from rows.values()


def ends(conclusion: Conclusion) -> tuple[float, float, float]:
    """The ratio with its interval; NaN where unknown."""
    value = conclusion.value
    return value.point, value.low, value.high


def _lengths(conclusion: Conclusion) -> str:
    lengths = conclusion.missing or conclusion.scope.lengths
    return ", ".join(phrases.between(lengths, conclusion.scope.of_sweep))


def verdict(conclusion: Conclusion) -> str:
    """`slower`, `larger`, `same`, `missing`, or `unsure` with what would decide it."""
    if conclusion.missing:
        return str(Verdict.MISSING)
    if conclusion.answer is Answer.SAME:
        return str(Verdict.SAME)
    usual = VERDICTS.get(conclusion.answer, Verdict.UNSURE)
    return phrases.verdict_label(usual, TABLE[conclusion.quantity])


def _tally(comparison: SweepComparison) -> Iterator[str]:
    """`Time: 3 slower, 40 same, of training at 128 to 512.` for each metric.

    With what would decide what is not sure, and what else differs.
    """
    by_metric: dict[str, list[Conclusion]] = {}
    for one in comparison.conclusions:
        by_metric.setdefault(one.quantity, []).append(one)
    for metric in dict.fromkeys(comparison.rows["metric"]):
        conclusions = by_metric[str(metric)]
        counts: Counter[str] = Counter()
        for one in conclusions:
            counts[verdict(one)] += len(one.missing or one.scope.lengths)
        parts = ", ".join(f"{count} {word}" for word, count in counts.most_common())
        where = phrases.in_order([*_where(conclusions)])
        scope = f"; both sweeps have it in {where}" if where else ""
        yield f"{units.capitalised(TABLE[str(metric)].label)}: {parts}{scope}."
    open_ = [one.decided_by for one in comparison.conclusions if not one.missing]
    if options := [*dict.fromkeys(filter(None, open_))]:
        yield f"What is unsure may be decided by sweeps with {' or '.join(options)}."
    if comparison.differs:
        yield f"What changed may come from this: {'; '.join(comparison.differs)}."


def _where(conclusions: Iterable[Conclusion]) -> Iterator[str]:
    """`training at 128 to 512`: the lengths of each mode at which a cost was compared."""
    lengths: dict[str, set[int]] = {}
    every: dict[str, tuple[int, ...]] = {}
    for one in conclusions:
        if one.scope.lengths:
            lengths.setdefault(one.mode, set()).update(one.scope.lengths)
            every[one.mode] = one.scope.of_sweep
    for mode, compared in lengths.items():
        yield f"{mode} at {', '.join(phrases.between(sorted(compared), every[mode]))}"
