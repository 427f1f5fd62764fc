"""What a sweep found: a sentence for each question, and the tables of its answer."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from operator import attrgetter

from attnbench import units
from attnbench.analysis.answers import Answers, Unmeasured
from attnbench.analysis.report import Analysis
from attnbench.analysis.scaling import CrossoverKind
from attnbench.analysis.standings import Winner
from attnbench.analysis.summary import DEVICE_TIME, Row
from attnbench.metrics import MEMORY, STATE, TIME
from attnbench.modes import find
from attnbench.records import PASSES, Outcome
from attnbench.render.cases import outcome_phrase
from attnbench.render.cost_tables import (
    batch,
    counted,
    factor,
    measured_or_why,
    milliseconds,
    of_token,
    per_layer,
    per_step,
    speedup_cell,
    timed_by,
)
from attnbench.render.grid import EMPTY, Cell, Column, Table, clean, number, table, words
from attnbench.render.growth_tables import crossing
from attnbench.render.names import compared_with, in_full
from attnbench.render.styles import labels

TITLE = "What the sweep found"
MOST = 5  # series that a list names
LONGEST_REASON = 100  # characters
NEVER = "never"  # faster than the baseline
ENDED_BY = (Outcome.CRASHED, Outcome.FAILED, Outcome.UNSUPPORTED)  # the reason says by what
PER_PAIR = (
    "Each speed-up, and the length from which it holds, has a 95 % interval of its own; “fastest”"
    " and “tie” are judged over all pairs and lengths at once, so two series may tie although the"
    " interval of their ratio excludes 1."
)


def sentences(answers: Answers) -> dict[str, str]:
    """The answer to each question, a sentence of plain text by its heading, in reading order."""
    names, found = labels(answers.series), {}
    if not answers.fastest:
        found["Fastest"] = "Nothing of what was timed is ranked; the warnings say why."
    if not answers.timed:
        found["Fastest"] = "Nothing was timed."
    for heading, winners in {
        "Fastest": answers.fastest,
        "Smallest state": answers.least_state,
        "Least memory": answers.least_memory,
    }.items():
        for mode in dict.fromkeys(winner.mode for winner in winners):
            groups: dict[object, list[Winner]] = {}
            for winner in winners:
                if winner.mode == mode:
                    groups.setdefault(winner.answer, []).append(winner)
            # the longest lengths first, and last those with nothing to compare
            ordered = sorted(groups.values(), key=lambda o: (o[0].measured == 1, -o[-1].seq_len))
            parts = (_led(own, names, answers.lengths) for own in ordered)
            found[f"{heading} in {mode}"] = f"{'; '.join(parts)}."
    if limits := [*_limits(answers.missing, names)]:
        found["Limits of length"] = f"{'; '.join(_few(limits))}."
    if answers.missing:
        counts: Counter[str] = Counter()
        for lost in answers.missing:
            counts[_ended(lost)] += len(lost.lengths)
        reasons = ", ".join(f"{units.count(n)} {reason}" for reason, n in counts.most_common())
        cases = units.many(answers.cases, "case")
        found["Not measured"] = f"{units.count(counts.total())} of {cases} ({reasons})."
    return found


def _led(winners: Sequence[Winner], names: dict[str, str], lengths: Sequence[int]) -> str:
    """`Fastformer at 2,048 to 8,192 (Linformer needs 1.13× [1.04, 1.22] as much at 8,192)`.

    Who leads at these lengths, and by how much at the longest. Where a ratio has no interval there
    is no winner yet.
    """
    last, first = winners[-1], names[winners[-1].first]
    where = f"at {in_order(between([winner.seq_len for winner in winners], lengths))}"
    if last.measured == 1:
        return f"only {first} was measured {where}"
    if last.unsure:
        return f"no winner after one round {where}, lowest so far {first}"
    if last.ties:
        tied = [first, *(names[rival.series] for rival in last.ties)]
        return f"{in_order(_few(tied))} tie {where}"
    if last.runner_up is None:
        return f"{first} {where}"
    margin, rival = last.runner_up.margin, names[last.runner_up.series]
    ratio = factor(margin.factor, margin.low, margin.high)
    return f"{first} {where} ({rival} needs {ratio} as much at {units.count(last.seq_len)})"


def _limits(missing: Sequence[Unmeasured], names: dict[str, str]) -> Iterator[str]:
    """`Transformer (eager) at 8,192 in training (memory)`: where each series ended."""
    ended: set[tuple[str, str]] = set()
    for lost in sorted((lost for lost in missing if lost.is_limit), key=attrgetter("lengths")):
        if (lost.series, lost.mode) not in ended:
            ended.add((lost.series, lost.mode))
            where = f"{units.count(lost.lengths[0])} in {lost.mode}"
            yield f"{names[lost.series]} at {where} ({_ended(lost)})"


def _few(items: Sequence[str]) -> Sequence[str]:
    """The items, or the first of them and how many more there are."""
    more = len(items) - MOST
    return items if more <= 1 else [*items[:MOST], f"{units.count(more)} more"]


def in_order(items: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(items[:-1]), items[-1])))


def answer(analysis: Analysis) -> Table:
    """The answer: a row for each series, at one length; none if nothing was timed.

    For each mode: the time, the speed-up over the baseline, the length from which the series is
    faster, on a GPU the share of its peak rate, and peak memory; in a mode that steps, the state.
    """
    found, names = analysis.answers, labels(analysis.answers.series)
    if found.seq_len is None:
        return Table(name="answer", title="The answer", columns=("Mechanism",), rows=())
    modes = [mode for mode in analysis.modes if (analysis.rows["mode"] == mode).any()]
    columns = [column for mode in modes for column in _columns(analysis, mode, names)]
    times = analysis.rows[analysis.rows["mode"] == modes[0]].set_index("series")[TIME].dropna()
    of = f", {batch(analysis.rows, analysis.sweep.request.batch_tokens)}"
    note = in_full(names)
    if analysis.speedups is not None:
        base = compared_with(names, analysis.baselines)
        alike = " of the same sizes" if len(analysis.baselines) > 1 else ""
        chosen = "" if analysis.against else "; --against chooses another"
        note = f"Compared with {base}{alike}{chosen}. {PER_PAIR} {note}"
    return table(
        sorted(found.series, key=lambda series: times.get(series, inf)),
        [Column("Mechanism", words, "series"), *columns],
        name="answer",
        title=f"The answer at N = {units.count(found.seq_len)} ({timed_by(analysis.rows)}"
        f"{of if {*modes} & {*PASSES} else ''}{per_layer(analysis.rows)})",
        note=note.strip(),
    )


def _columns(analysis: Analysis, mode: str, names: dict[str, str]) -> Iterator[Column]:
    """The columns of a mode, whose cells are made from the names of series."""
    rows = {row["series"]: row for _, row in analysis.rows.iterrows() if row["mode"] == mode}
    title, steps, bases = find(mode).title, mode not in PASSES, analysis.baselines

    def column(heading: str, key: str, cell: Callable[[Row], Cell]) -> Column:
        def of_series(series: str) -> Cell:
            return cell(rows[series]) if series in rows else EMPTY

        return Column(f"{title}{heading}", of_series, f"{mode}_{key}")

    def time(row: Row) -> Cell:
        return measured_or_why(row, TIME, lambda row: milliseconds(row, row["batch_scale"]))

    def speedup(row: Row) -> Cell:
        if units.has_value(row["ratio"]):
            return speedup_cell(row["ratio"], row["ratio_low"], row["ratio_high"])
        return Cell("1", 1.0) if row["series"] in bases and row[TIME] > 0 else EMPTY

    step = per_step(analysis.rows[analysis.rows["mode"] == mode], "token")
    yield column(f", ms per {step}" if steps else ", ms", "ms", time)
    if step != "token":
        token = partial(measured_or_why, metric=TIME, cell=of_token)
        yield column(", ms per token", "token_ms", token)
    if analysis.speedups is not None:
        yield column(f" vs {compared_with(names, bases)}", "speedup", speedup)
        yield column(": faster from N", "faster_from", _faster_from)
    if DEVICE_TIME in {*analysis.rows["clock"]}:
        share = partial(number, text=units.percent)
        yield column(", of the peak", "peak_share", lambda row: share(row["peak_share"]))
    if steps:
        yield column(": state", STATE, lambda row: number(row[STATE] / row["batch"], units.size))
    else:
        yield column(": peak, MiB", "peak_mib", lambda row: counted(row[MEMORY] / units.MIB))


def _faster_from(row: Row) -> Cell:
    """From which length on a series is faster than the baseline, or up to which."""
    match row["answer_ahead"], row["answer_back"]:
        case CrossoverKind.FROM, _:
            return crossing(row, "_ahead")
        case CrossoverKind.ALWAYS, _:
            return Cell("all")
        case _, CrossoverKind.ALWAYS:
            return Cell(NEVER)
        case _, CrossoverKind.FROM:
            back = crossing(row, "_back")
            return Cell(NEVER if back.value is None else f"up to {back.text}")
    return Cell(str(CrossoverKind.UNCLEAR)) if units.has_value(row["ratio"]) else EMPTY


def not_measured(missing: Sequence[Unmeasured], every: Sequence[int]) -> Table:
    """A row for each series, mode and reason; `every` are the lengths of the plan."""
    return table(
        missing,
        [
            Column("Mechanism", lambda lost: words(lost.series), "series"),
            Column("Mode", lambda lost: words(lost.mode)),
            Column("Lengths", lambda lost: words(", ".join(between(lost.lengths, every)))),
            Column("Reason", lambda lost: words(_reason(lost))),
        ],
        name="not_measured",
        title="Not measured",
        note="cases.csv has every case, with its reason in full and its predicted cost.",
    )


def _reason(lost: Unmeasured) -> str:
    """`budget`; `failed: …` where a short reason says more."""
    full = clean(lost.reason)
    says_more = lost.outcome in ENDED_BY and 0 < len(full) <= LONGEST_REASON
    return f"{_ended(lost)}: {full}" if says_more else _ended(lost)


def _ended(lost: Unmeasured) -> str:
    """`budget`, `out of memory`: what ended a series, in a word or two."""
    return outcome_phrase(lost.outcome, lost.cause).removeprefix("over ")


def between(lengths: Sequence[int], every: Sequence[int]) -> list[str]:
    """`128 to 512`, `4,096`: a text for each run of lengths that are neighbours in `every`."""
    runs: list[list[int]] = []
    for length in lengths:
        if runs and every.index(length) == every.index(runs[-1][-1]) + 1:
            runs[-1].append(length)
        else:
            runs.append([length])
    return [units.between(run[0], run[-1]) for run in runs]
