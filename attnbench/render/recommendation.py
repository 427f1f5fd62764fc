"""What to choose at one length: a sentence and a ranking."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

from attnbench import units
from attnbench.analysis.recommend import Basis, Choice, Excluded, Recommendation
from attnbench.records import PASSES
from attnbench.render.answers import in_order
from attnbench.render.cases import outcome_phrase
from attnbench.render.cost_tables import WIDE, counted, factor
from attnbench.render.grid import (
    EMPTY,
    Cell,
    Column,
    Table,
    bounded,
    none_if_nan,
    number,
    table,
    words,
)
from attnbench.render.names import labels_of

MOST = 3  # predicted series that a sentence names


def recommended(advice: Recommendation) -> str:
    """`At N = 4,096 in inference: Fastformer, 1.18× [1.02, 1.36] as fast as Linformer.`"""
    given, gone = advice.choices, advice.excluded
    names = labels_of([*(choice.series for choice in given), *(each.series for each in gone)])
    ranked = [choice for choice in advice.choices if choice.rank is not None]
    predicted = [choice for choice in advice.choices if choice.rank is None]
    where = f"At N = {units.count(advice.seq_len)} in {advice.mode}"
    fits = f" fits into {units.size(advice.memory_bytes)}" if advice.memory_bytes else ""
    if not ranked:
        nothing = f"no measured series{fits}" if fits else "no series was measured"
        return f"{where}: {nothing}{_guess(predicted, names)}."
    best, first = names[ranked[0].series], [choice for choice in ranked if choice.rank == 1]
    if len(ranked) == 1:
        text = f"{best}, the only series that was measured" + " and fits" * bool(fits)
    elif not ranked[1].margin.known:
        text = f"{best} took the least time; after one round no difference is certain"
    elif len(first) > 1:
        text = f"{in_order([names[choice.series] for choice in first])} tie"
    else:
        margin = ranked[1].margin
        text = f"{best}, {factor(margin.factor, margin.low, margin.high)} as fast as"
        text += f" {names[ranked[1].series]}"
    rivals = [choice for choice in predicted if not choice.low > ranked[0].seconds]
    return f"{where}: {text}{_guess(rivals, names, beside=True)}."


def _guess(predicted: Sequence[Choice], names: Mapping[str, str], beside: bool = False) -> str:
    """What predictions say of series without a time, whose bands may overlap."""
    if not predicted:
        return ""
    first = predicted[0]
    same = [choice for choice in predicted if beside or not choice.low > first.high]
    listed = in_order([names[choice.series] for choice in same[:MOST]])
    more = f" and {len(same) - MOST} more" * (len(same) > MOST)
    bands = in_order([_band(choice) for choice in same[:MOST]])
    if beside:
        return f"; {listed}{more}, not measured, may be faster: predicted {bands}"
    if len(same) > 1:
        return f"; {listed}{more} cannot be told apart: predicted {bands}"
    return f"; {listed} is predicted to take the least time, {bands}"


def _band(choice: Choice) -> str:
    """`2.10 s to 2.90 s`, or `about 2.47 s` if there is no band."""
    if not units.has_value(choice.low):
        return f"about {units.seconds(choice.seconds)}"
    return units.between(choice.low, choice.high, units.seconds)


def ranking(advice: Recommendation) -> Table:
    """A row for each series: those to choose from, the best first, then the others."""
    decode = advice.mode not in PASSES
    rows = [
        *map(_choice, advice.choices),
        *(_excluded(excluded, advice) for excluded in advice.excluded),
    ]
    place = f"at N = {units.count(advice.seq_len)}, {advice.mode}"
    peaks = f"Peak memory is that of the sweep's batch{', and of prompts that ran' * decode}."
    if not advice.choices:
        headings = ["Mechanism", "Peak, MiB", "Reason"]
        name, title, note = f"excluded_{advice.mode}", f"Excluded {place}", peaks
    else:
        headings = ["Mechanism", "Rank", "Time, ms", "Ratio to the first", "Peak, MiB"]
        headings += [*["State"] * decode, "Basis"]
        name, title = f"ranking_{advice.mode}", f"Ranking {place}"
        note = " ".join(_ranking_notes(advice, peaks))
    columns = [Column(heading, itemgetter(heading)) for heading in headings]
    return table(rows, columns, name=name, title=title, note=note)


def _ranking_notes(advice: Recommendation, peaks: str) -> Iterator[str]:
    batch = (
        f"a batch of {units.count(advice.tokens)} tokens" if advice.tokens else "the sweep's batch"
    )
    if any(choice.rank for choice in advice.choices):
        yield "Series that tie share a rank."
    yield (
        f"{units.capitalised(WIDE)} Times are of"
        f" {'one step' if advice.mode not in PASSES else batch}, with 95 % confidence intervals;"
        " those of ratios to the first are simultaneous."
    )
    yield peaks
    if any(choice.basis is Basis.BETWEEN for choice in advice.choices):
        yield "Between two measured lengths costs are interpolated in log–log."
    if any(choice.basis is Basis.PREDICTED for choice in advice.choices):
        yield (
            "Predicted times (≈) have a 95 % band, wider with the distance from what was measured,"
            " and no rank."
        )


def _choice(choice: Choice) -> dict[str, Cell]:
    time, low, high = (1e3 * value for value in (choice.seconds, choice.low, choice.high))
    cell = bounded(time, low, high)
    if choice.basis is Basis.PREDICTED:
        text = units.plain(time)
        if units.has_value(low):
            text = units.interval(text, units.plain(low), units.plain(high))
        cell = cell._replace(text=f"≈ {text}")
    margin = choice.margin
    ratio = factor(margin.factor, margin.low, margin.high) if margin.factor != 1 else "1"
    between = f", {' to '.join(map(units.count, choice.lengths))}" * (len(choice.lengths) > 1)
    return {
        "Mechanism": words(choice.series),
        "Rank": EMPTY if choice.rank is None else number(choice.rank, str),
        "Time, ms": cell,
        "Ratio to the first": Cell(
            ratio, none_if_nan(margin.factor), none_if_nan(margin.low), none_if_nan(margin.high)
        ),
        "Peak, MiB": counted(choice.peak_bytes / units.MIB),
        "State": number(choice.state_bytes, units.size),
        "Basis": words(f"{choice.basis}{between}"),
    }


def _excluded(excluded: Excluded, advice: Recommendation) -> dict[str, Cell]:
    if excluded.ending:
        reason = excluded.reason or outcome_phrase(excluded.ending, excluded.ending)
    elif units.has_value(excluded.peak_bytes):
        reason = f"needs more than {units.size(advice.memory_bytes or 0)}"
    else:
        reason = "its peak memory is not known"
    known = {
        "Mechanism": words(excluded.series),
        "Peak, MiB": counted(excluded.peak_bytes / units.MIB),
        "Basis": words(reason),
        "Reason": words(reason),
    }
    return defaultdict(lambda: EMPTY, known)
