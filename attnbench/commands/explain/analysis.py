"""Why one mechanism takes longer than another: times and counts of both at each level."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan

from attnbench.analysis import Answer, Conclusion, Frame, Question, Row, Value, analyse
from attnbench.analysis.concluding import ModePlan, basis, longer, plans
from attnbench.analysis.scaling import speedups
from attnbench.analysis.suspects import SHOWS_LAUNCHES
from attnbench.errors import CannotRun
from attnbench.records import MISSING, Sweep, metrics

COUNTS = ("flops", "operators", "kernels", "moved_bytes")  # kernels: on a GPU


@dataclass(frozen=True, kw_only=True)
class LevelCosts:
    """Both mechanisms at one level: their rows of `summary`, and times of the first over the other.

    The ratio has its 95 % confidence interval, NaN after one round; it is NaN unless both ran. The
    `conclusion` says whether the first takes longer, in the form that ran at this level.
    """

    level: str
    a: Row
    b: Row
    conclusion: Conclusion
    paired: bool = False  # whether the two took turns
    ratio: float = nan
    low: float = nan
    high: float = nan

    @property
    def cases(self) -> Frame:
        """The rows of both."""
        return Frame([self.a, self.b])


def by_level(sweeps: Sequence[Sweep]) -> list[LevelCosts]:
    """The costs at the level of each sweep, which has one case of each of two mechanisms.

    Raises `CannotRun`, with the last reason, if no level timed both.
    """
    levels = []
    for sweep in sweeps:
        first, second = (planned.case.series for planned in sweep.plan)
        analysis = analyse(sweep, first)
        rows = analysis.cases
        a, b = (rows[rows["series"] == name].iloc[0] for name in (first, second))
        ratios = speedups(rows, {a["mode"]: (first,)}, analysis.ratios).to_dict("records")
        ends = {name: row[name] for row in ratios for name in ("ratio", "low", "high")}
        point, low, high = (ends.get(name, nan) for name in ("ratio", "low", "high"))
        value = Value(point=point, low=low, high=high)
        (plan,) = plans(analysis.judged, sweep.request)
        conclusion = _concluded(plan, (a, b), value, _longer(sweeps))
        level = str(sweep.request.level)
        paired = any(row["paired"] for row in ratios)
        levels.append(
            LevelCosts(level=level, a=a, b=b, conclusion=conclusion, paired=paired, **ends)
        )
    if all(isnan(level.ratio) for level in levels):
        lost = next(row for row in (b, a) if isnan(row[metrics.TIME]))
        late = lost["outcome"] == MISSING
        why = "the budget ended before; raise --budget" if late else lost["reason"]
        raise CannotRun(f"no level timed both: {lost['series']}: {why}")
    return levels


def _longer(sweeps: Sequence[Sweep]) -> str:
    """The option with twice the time for all levels; empty where there is no limit."""
    budgets = [sweep.request.budget_s for sweep in sweeps]
    whole_s = sum(budget for budget in budgets if budget is not None)
    return "" if None in budgets else longer("--budget", whole_s)


def _concluded(plan: ModePlan, rows: tuple[Row, Row], value: Value, more_time: str) -> Conclusion:
    """Whether the first of two takes longer at the length of a plan.

    Where one is suspect, was not timed, or no difference is shown, that is not known.

    rows: of both in the summary.
    value: the time of the first over the second, with its interval.
    more_time: the option that repeats measurements, or reaches what had no time.
    """
    first, second = (str(row["series"]) for row in rows)
    at = [int(row["seq_len"]) for row in rows]
    untimed = [row for row in rows if isnan(row[metrics.TIME])]
    signs = [f"{row['series']} {row['suspect']}" for row in rows if row["suspect"]]
    signs += [f"{row['series']}: {SHOWS_LAUNCHES}" for row in rows if row["shows_launches"]]
    answer = Answer.NOT_KNOWN
    reason = ""
    option = ""
    if untimed:
        endings = [plan.endings[str(row["series"]), at[0]] for row in untimed]
        reason = "; ".join(f"{row['series']}: {row['reason']}" for row in untimed)
        option = more_time if plan.reaching(endings) else ""
    elif signs:
        reason = "; ".join(signs)
    elif value.low > 1:
        answer = Answer.COSTS_MORE
    elif value.high < 1:
        answer = Answer.COSTS_LESS
    else:
        one_round = isnan(value.low)
        reason = "one round has no interval" if one_round else "the interval contains 1"
        option = more_time
    return Conclusion(
        question=Question.DIFFERENCE,
        answer=answer,
        mode=plan.mode,
        scope=plan.scope([] if untimed else at[:1]),
        basis=basis(metrics.TIME),
        series=(first,),
        against=(second,),
        value=value,
        quantity=metrics.TIME,
        missing=tuple(at[:1]) if untimed else (),
        reason=reason,
        decided_by=option,
    )
