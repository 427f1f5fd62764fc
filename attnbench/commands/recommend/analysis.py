"""The series of a sweep at one of its lengths: ranked, or without a rank for a reason."""

from collections.abc import Iterator
from dataclasses import astuple
from math import nan

import pandas as pd

from attnbench.analysis import Analysis, Answer, Basis, Conclusion, Question, Value
from attnbench.analysis.concluding import basis, left_out, plans
from attnbench.analysis.suspects import SHOWS_LAUNCHES
from attnbench.errors import UsageError
from attnbench.records import MISSING, Cause, metrics, units


def recommend(analysis: Analysis, seq_len: int, memory_bytes: float | None = None) -> pd.DataFrame:
    """The rows of `summary` at that length: by rank in each mode and sizes, then all others.

    `memory_bytes` limits the peak, measured or predicted. Added: rank from 1, shared by ties, and
    NaN where the times have no intervals; ratio of the time to the first one's, with its
    simultaneous interval low to high; excluded, why, empty where only time was lacking. Raises
    `UsageError` if the sweep lacks the length.
    """
    cases = analysis.cases[analysis.cases["seq_len"] == seq_len]
    if cases.empty:
        lengths = units.few(analysis.answers.lengths, most=20)
        raise UsageError(f"the sweep has no length {seq_len}; it has {lengths}")
    late = (cases["cause"] == Cause.BUDGET) | (cases["outcome"] == MISSING)
    excluded = cases["suspect"].mask(cases[metrics.TIME].isna() & ~late, cases["reason"])
    excluded = excluded.mask(cases["shows_launches"] & (excluded == ""), SHOWS_LAUNCHES)
    if memory_bytes is not None:
        reasons = {
            (one.mode, one.series[0]): one.reason
            for one in fitting(analysis, seq_len, memory_bytes)
        }
        why = [reasons[place] for place in zip(cases["mode"], cases["series"], strict=True)]
        excluded = excluded.mask(excluded == "", why)
    rows = []
    cases = cases.assign(excluded=excluded)
    for (mode, _), block in cases.groupby(["mode", "sizes"], sort=False):
        chosen = block[(block["excluded"] == "") & (block[metrics.TIME] > 0)]
        places = analysis.standings.places([*chosen["series"]], str(mode), seq_len)
        has_intervals = all(place.margin.has_interval for place in places)
        ranks = [(p.series, p.rank if has_intervals else nan, *astuple(p.margin)) for p in places]
        ranked = pd.DataFrame(ranks, columns=["series", "rank", "ratio", "low", "high"])
        rows += [
            ranked.merge(block),
            block.drop(chosen.index).sort_values(["excluded", metrics.TIME]),
        ]
    return pd.concat(rows, ignore_index=True)


def fitting(analysis: Analysis, seq_len: int, memory_bytes: float) -> Iterator[Conclusion]:
    """Whether each series fits into a limit at a length; the reason is empty where it does.

    Peaks are of all layers of a stack. One that was not measured is the predicted one, if there is
    one. A peak that misses memory can show that a series does not fit, and not that it does.
    """
    limit = units.size(memory_bytes)
    for plan in plans(analysis.cases, analysis.sweep.request):
        rows = plan.cases[plan.cases["seq_len"] == seq_len]
        for row in rows.to_dict("records"):
            measured = row[metrics.MEMORY] > 0
            of_layer = row[metrics.MEMORY] if measured else row["predicted_bytes"]
            peak = float(row["depth"] * of_layer)
            answer = Answer.FITS
            reason = ""
            if peak > memory_bytes:
                needs = "needs" if measured else "predicted to need"
                answer = Answer.TOO_LARGE
                reason = f"{needs} {units.size(peak)}, over {limit}"
            elif not peak <= memory_bytes:
                answer = Answer.NOT_KNOWN
                reason = f"not known to fit into {limit}: its peak was not measured"
            elif measured and row["uncounted"]:
                answer = Answer.NOT_KNOWN
                reason = f"not known to fit into {limit}: its peak misses {row['uncounted']}"
            series = str(row["series"])
            yield Conclusion(
                question=Question.FITS,
                answer=answer,
                mode=plan.mode,
                scope=plan.scope([seq_len] if measured else []),
                basis=Basis.COUNTED if measured else Basis.PREDICTED,
                series=(series,),
                value=Value(point=peak),
                quantity=metrics.MEMORY,
                missing=() if measured else (seq_len,),
                reason=reason,
                decided_by="" if measured else plan.reaching([plan.endings[series, seq_len]]),
            )


def recommendations(
    analysis: Analysis, advice: pd.DataFrame
) -> Iterator[tuple[Conclusion, pd.DataFrame]]:
    """Which of the series that are not excluded is fastest, with each block of `recommend`'s rows.

    Without a series where none of these was timed.
    """
    for plan in plans(analysis.cases, analysis.sweep.request):
        block = advice[(advice["mode"] == plan.mode) & (advice["sizes"] == plan.sizes)]
        if block.empty:
            continue
        ranked = block[block["ratio"].notna()].reset_index(drop=True)
        has_ranks = bool(ranked["rank"].notna().all())
        first = ranked[ranked["rank"] == 1] if has_ranks else ranked[:1]
        answers = {0: Answer.NOT_KNOWN, 1: Answer.ALONE}
        usual = Answer.TIE if len(first) > 1 else Answer.WINNER
        answer = answers.get(len(ranked), usual if has_ranks else Answer.NOT_KNOWN)
        rivals = ranked[len(first) :]
        value = rival = None
        if len(rivals) and answer is Answer.WINNER:
            next_one = rivals.iloc[0]
            rival = str(next_one["series"])
            value = Value(point=next_one["ratio"], low=next_one["low"], high=next_one["high"])
        least = float(ranked[metrics.TIME].iloc[0]) if len(ranked) else float("nan")
        open_ = block[block["ratio"].isna() & (block["excluded"] == "")]
        length = int(block["seq_len"].iloc[0])
        lost = tuple(left_out(open_, metrics.TIME, least, plan.failing(length)))
        conclusion = Conclusion(
            question=Question.FASTEST,
            answer=answer,
            mode=plan.mode,
            scope=plan.scope([length] if len(ranked) else []),
            basis=basis(metrics.TIME),
            series=tuple(map(str, first["series"])),
            against=tuple(map(str, rivals["series"])),
            value=value or Value(),
            quantity=metrics.TIME,
            rival=rival or "",
            left_out=lost,
            decided_by=plan.repeating()
            if answer is Answer.NOT_KNOWN and len(ranked)
            else plan.reaching(plan.endings[one.series, length] for one in lost),
        )
        yield conclusion, block
