"""Conclusions in words: where one series is faster than another, and a table of all of them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from attnbench.analysis import Answer, Conclusion, Scope, Value
from attnbench.records import metrics, units
from attnbench.report.grid import EMPTY, Cell, Column, Table, none_if_nan, number, table, words

if TYPE_CHECKING:
    from attnbench.analysis import Verdict


def faster_at(conclusion: Conclusion | None) -> Cell:
    """At which lengths a series is faster than another.

    `all`, `128 to 512`, `from 300 [256, 512]`, `from 300 [256, 512] to 8,192` where both were not
    timed beyond, `from 300 [256, 512] to 1,024 and at 8,192` where they were not in between,
    `slower at 128`, `up to 300 [256, 512]`, `from 128 up to 300 [256, 512]` where one was not timed
    before, `slower from 512`, `slower from 512 to 8,192`, `never`, `not known`.
    """
    if conclusion is None:
        return EMPTY
    scope = conclusion.scope
    value = conclusion.value
    lengths = in_order(between(scope.lengths, scope.of_sweep))
    point, low, high = ("" if end is None else units.count(round(end)) for end in ends(value))
    length = units.interval(point, low, high) if low else f"≤ {high}"
    match conclusion.answer:
        case Answer.FROM:
            return Cell(f"from {length}{_end(scope, value)}", *ends(value))
        case Answer.UP_TO:
            return Cell(f"{_begin(scope, value)}up to {length}")
        case Answer.SLOWER_FROM:
            return Cell(_slower(scope, value))
        case Answer.ALL:
            return Cell("all")
        case Answer.NEVER:
            return Cell("never")
        case Answer.FASTER_AT:
            return Cell(lengths)
        case Answer.SLOWER_AT:
            return Cell(f"slower at {lengths}")
    return Cell(str(Answer.NOT_KNOWN))


def _begin(scope: Scope, value: Value) -> str:
    """`from 1,024 `: the first of the lengths up to a value of which none is missing, if one is.

    Before it those at which both were timed all the same: `at 128 and from 1,024 `.
    """
    before = [n for n in scope.of_sweep if n <= value.low]
    last_missing = max((n for n in before if n not in scope.lengths), default=0)
    if not last_missing:
        return ""
    first = next((n for n in before if n > last_missing), 0)
    others = between([n for n in scope.lengths if n < last_missing], scope.of_sweep)
    return (f"at {in_order(others)} and " if others else "") + f"from {units.count(first)} "


def _run(scope: Scope, value: Value) -> tuple[int, tuple[int, ...]]:
    """The last of the lengths from a value on of which none is missing, and those beyond it."""
    last = round(value.high)
    for n in (n for n in scope.of_sweep if n >= value.high):
        if n not in scope.lengths:
            break
        last = n
    return last, tuple(n for n in scope.lengths if n > last)


def _end(scope: Scope, value: Value) -> str:
    """` to 8,192` where the lengths of the sweep go on, of which one is missing then.

    With those beyond it at which both were timed all the same: ` to 1,024 and at 8,192`.
    """
    last, beyond = _run(scope, value)
    if last == scope.of_sweep[-1]:
        return ""
    others = in_order(between(beyond, scope.of_sweep))
    return f" to {units.count(last)}" + (f" and at {others}" if others else "")


def _slower(scope: Scope, value: Value) -> str:
    """`slower from 512`, `slower from 512 to 8,192`, `slower at 128 and 512 to 1,024`."""
    last, beyond = _run(scope, value)
    if last == value.high != scope.of_sweep[-1]:
        return f"slower at {in_order(between((last, *beyond), scope.of_sweep))}"
    return f"slower from {units.count(round(value.high))}{_end(scope, value)}"


def ends(value: Value) -> tuple[float | None, float | None, float | None]:
    """A number with both ends of its interval; None where unknown."""
    return none_if_nan(value.point), none_if_nan(value.low), none_if_nan(value.high)


def between(lengths: Sequence[int], every: Sequence[int]) -> list[str]:
    """`128 to 512`, `4,096`: a text for each run of lengths that are neighbours in `every`."""
    runs: list[list[int]] = []
    for length in lengths:
        if runs and every.index(length) == every.index(runs[-1][-1]) + 1:
            runs[-1].append(length)
        else:
            runs.append([length])
    return [units.between(run[0], run[-1]) for run in runs]


def in_order(items: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def listed(conclusions: Iterable[Conclusion]) -> Table:
    """A row for each conclusion, with the names of series as the plan has them.

    The lengths at which it was measured are a list of JSON.
    """
    return table(
        conclusions,
        [
            Column("Question", lambda one: words(one.question)),
            Column("Quantity", lambda one: words(one.quantity)),
            Column("Mode", lambda one: words(one.mode)),
            Column("Sizes", lambda one: words(one.scope.sizes)),
            Column("Step", lambda one: number(one.scope.step)),
            Column("Answer", lambda one: words(one.answer)),
            Column("Series", lambda one: words("; ".join(one.series))),
            Column("Value", _value),
            Column("Rival", lambda one: words(one.rival)),
            Column("Measured at", lambda one: words([*one.scope.lengths])),
            Column("Compared with", lambda one: words("; ".join(one.against))),
            Column("Left out", lambda one: words("; ".join(_left_out(one)))),
            Column("Basis", lambda one: words(one.basis)),
            Column("Decided by", lambda one: words(one.decided_by)),
        ],
        name="conclusions",
        title="Conclusions",
    )


def _value(conclusion: Conclusion) -> Cell:
    return Cell("", *ends(conclusion.value))


def _left_out(conclusion: Conclusion) -> Iterable[str]:
    return (f"{lost.series} ({lost.expected})" for lost in conclusion.left_out)


def verdict_label(verdict: "Verdict", metric: metrics.Metric) -> str:
    """The verdict in the words of the metric: bytes are larger, not slower."""
    from attnbench.analysis import Verdict

    if metric.unit is metrics.Unit.SECONDS or verdict not in (Verdict.SLOWER, Verdict.FASTER):
        return str(verdict)
    grew = (verdict is Verdict.SLOWER) == (metric.better is metrics.Better.LOWER)
    return "larger" if grew else "smaller"
