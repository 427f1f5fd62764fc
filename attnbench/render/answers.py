"""What a sweep found: one sentence for each question, one table; and what to choose at a length."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from math import inf
from operator import attrgetter
from typing import NamedTuple

from attnbench import units
from attnbench.analysis.answers import Answers, Unmeasured
from attnbench.analysis.report import Analysis
from attnbench.analysis.scaling import CrossoverKind
from attnbench.analysis.standings import Winner
from attnbench.analysis.summary import Row
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
    per_layer,
    speedup_cell,
    timed_by,
)
from attnbench.render.grid import EMPTY, Cell, Column, Table, clean, number, table, words
from attnbench.render.growth_tables import crossing, exponent
from attnbench.render.names import compared_with, in_full
from attnbench.render.styles import labels

TITLE = "What the sweep found"
LONGEST_REASON = 100  # characters
NEVER = "never"  # faster than the baseline
NO_WINNER = "One round only, so no winner yet; lowest so far:"
PER_PAIR = (
    "Speed-ups and the lengths from which they hold are at 95 % for each pair; “fastest” and “tie”"
    " hold at 95 % for all pairs and lengths at once, so series may tie though the interval of"
    " their own ratio excludes 1."
)
WITHIN = "“Within 1.1×”: faster or slower by at most that factor."


_SIZES = attrgetter("sizes")


class Paragraph(NamedTuple):
    """A few sentences of plain text on one question; the heading has no full stop."""

    heading: str
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """`Least memory in training: Linformer at …`."""
        return f"{self.heading}: {' '.join(self.sentences)}"


def paragraphs(answers: Answers, most: int | None = None) -> list[Paragraph]:
    """The answers in reading order; lists name at most `most` series, if it is given."""
    return [p for p in _all(answers, _Writer(answers, most)) if p.sentences]


def _all(answers: Answers, write: "_Writer") -> Iterator[Paragraph]:
    if not answers.timed:
        yield Paragraph("Fastest", ("Nothing was timed.",))
    yield from write.leading("Fastest", answers.fastest, margins=True)
    yield from write.leading("Smallest state", answers.least_state)
    yield from write.leading("Least memory", answers.least_memory)
    yield Paragraph("Limits of length", tuple(write.limits(answers.missing)))
    if answers.missing:
        counts: Counter[str] = Counter()
        for lost in answers.missing:
            counts[_ended(lost)] += len(lost.lengths)
        parts = [f"{units.count(n)} {reason}" for reason, n in counts.most_common()]
        total = f"{units.count(counts.total())} of {units.many(answers.cases, 'case')}"
        yield Paragraph("Not measured", (f"{total} ({', '.join(parts)}).",))


class _Writer:
    """Sentences with the labels of the series."""

    def __init__(self, answers: Answers, most: int | None) -> None:
        self.names, self.lengths = labels(answers.series), answers.lengths
        self.at, self.most = answers.seq_len, most

    def leading(
        self,
        heading: str,
        found: Sequence[Winner],
        margins: bool = False,
    ) -> Iterator[Paragraph]:
        """A paragraph for each mode, or one for all modes with the same sentences.

        Where a ratio has no interval there is no winner yet.
        """
        said: dict[tuple[str, ...], list[str]] = {}
        every = dict.fromkeys(winner.mode for winner in found)
        for mode in every:
            own = [winner for winner in found if winner.mode == mode]
            known = [winner for winner in own if not winner.unsure]
            texts = [self.led(known, margins)] if known else []
            if len(known) < len(own):
                texts.append(f"{NO_WINNER} {self.led([w for w in own if w.unsure], False)}")
            said.setdefault(tuple(texts), []).append(mode)
        for sentences, modes in said.items():
            of = "" if 1 < len(modes) == len(every) else f" in {in_order(modes)}"
            yield Paragraph(f"{heading}{of}", sentences)

    def led(self, winners: Sequence[Winner], margins: bool) -> str:
        """`Fastformer at 2,048 to 8,192 (1.13× [1.04, 1.22] as fast as Linformer at 8,192).`

        Sizes follow one another.
        """
        of_sizes = (self.grouped([*own], margins) for _, own in groupby(winners, _SIZES))
        return f"{'; '.join(chain.from_iterable(of_sizes))}."

    def grouped(self, winners: Sequence[Winner], margins: bool) -> list[str]:
        """A part for each answer, that of the table's length or the longest first."""
        same: dict[object, list[Winner]] = {}
        for winner in winners:
            same.setdefault(winner.answer, []).append(winner)
        ordered = sorted(
            same.values(),
            key=lambda own: (self.at not in {p.seq_len for p in own}, -own[-1].seq_len),
        )
        return [self.group(own, margins and not i) for i, own in enumerate(ordered)]

    def group(self, winners: Sequence[Winner], margins: bool) -> str:
        """Who leads at these lengths, and by how much at the table's length or the longest."""
        last = next((winner for winner in winners if winner.seq_len == self.at), winners[-1])
        lengths = between([winner.seq_len for winner in winners], self.lengths)
        where = f"at {in_order(lengths)}"
        if len(winners) == len(self.lengths) > 1:
            where = "at all lengths"
        first = self.names[last.first]
        if last.measured == 1:
            return f"only {first} was measured {where}"
        if last.ties:
            return f"{self.tie(last)} {where}"
        if not margins or last.runner_up is None:
            return f"{first} {where}"
        margin = last.runner_up.margin
        rival = self.names[last.runner_up.series]
        at = f" at {units.count(last.seq_len)}" * (len(winners) > 1)
        return (
            f"{first} {where} ({factor(margin.factor, margin.low, margin.high)} as fast as"
            f" {rival}{at})"
        )

    def tie(self, winner: Winner) -> str:
        """`Fastformer and Linformer tie`."""
        names = [self.names[name] for name in (winner.first, *(r.series for r in winner.ties))]
        return f"{self.listed(names)} tie"

    def limits(self, missing: Sequence[Unmeasured]) -> Iterator[str]:
        """`Transformer (eager): memory at 8,192 in training.`"""
        found: dict[tuple[str, str], dict[str, int]] = {}
        for lost in sorted((lost for lost in missing if lost.is_limit), key=attrgetter("lengths")):
            at = found.setdefault((self.names[lost.series], _ended(lost)), {})
            at.setdefault(lost.mode, lost.lengths[0])
        texts = []
        for (name, what), at in found.items():
            where = in_order([f"{units.count(length)} in {mode}" for mode, length in at.items()])
            texts.append(f"{name}: {what} at {where}")
        if texts:
            yield f"{'; '.join(self.shortened(texts))}."

    def listed(self, items: Sequence[str]) -> str:
        """`a, b and c`, or `a, b and 5 more`; items that hold commas are separated by `;`."""
        items = self.shortened(items)
        return "; ".join(items) if any(", " in item for item in items) else in_order(items)

    def shortened(self, items: Sequence[str]) -> Sequence[str]:
        """The items, or the first of them and how many more there are."""
        if self.most is None or len(items) <= self.most + 1:
            return items
        return [*items[: self.most], f"{units.count(len(items) - self.most)} more"]


def in_order(items: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(items[:-1]), items[-1])))


def answer(analysis: Analysis) -> Table:
    """The answer: a row for each series, at one length; none if nothing was timed.

    For each mode: the time, the speed-up over the baseline, the length from which the series is
    faster, and peak memory; in a mode that steps, the state instead, and how time and state grow.
    """
    found, names = analysis.answers, labels(analysis.answers.series)
    if found.seq_len is None:
        return Table(name="answer", title="The answer", columns=("Mechanism",), rows=())
    modes = [mode for mode in analysis.modes if (analysis.rows["mode"] == mode).any()]
    columns = [column for mode in modes for column in _columns(analysis, mode, names)]
    times = analysis.rows[analysis.rows["mode"] == modes[0]].set_index("series")[TIME].dropna()
    passes = bool({*modes} & {*PASSES})
    of = f", {batch(analysis.rows, analysis.sweep.request.batch_tokens)}" * passes
    shown = table(
        sorted(found.series, key=lambda series: times.get(series, inf)),
        [Column("Mechanism", words, "series"), *columns],
        name="answer",
        title=f"The answer at N = {units.count(found.seq_len)} ({timed_by(analysis.rows)}{of}"
        f"{per_layer(analysis.rows)})",
    )
    notes = []
    if analysis.speedups is not None:
        bases = analysis.baselines
        why_it = "the sweep's first" if found.series[0] in bases else "softmax attention"
        chosen = "" if analysis.against else f", {why_it}; --against chooses another"
        alike = " of the same sizes" if len(bases) > 1 else ""
        notes += [f"Compared with {compared_with(names, bases)}{alike}{chosen}.", PER_PAIR]
        within = (cell.text.startswith("within") for row in shown.rows for cell in row)
        notes += [WITHIN] * any(within)
    return replace(shown, note=" ".join(filter(None, [*notes, in_full(names)])))


def _columns(analysis: Analysis, mode: str, names: Mapping[str, str]) -> Iterator[Column]:
    """The columns of a mode, whose cells are made from the names of series."""
    rows = {row["series"]: row for _, row in analysis.rows.iterrows() if row["mode"] == mode}
    title, steps, bases = find(mode).title, mode not in PASSES, analysis.baselines

    def column(heading: str, key: str, cell: Callable[[Row], Cell]) -> Column:
        def of_series(series: str) -> Cell:
            return cell(rows[series]) if series in rows else EMPTY

        return Column(f"{title}{heading}", of_series, f"{mode}_{key}")

    def time(row: Row, key: str = TIME) -> Cell:
        return measured_or_why(row, key, lambda row: milliseconds(row, key, row["batch_scale"]))

    yield column(", ms per token" if steps else ", ms", "ms", time)
    if analysis.speedups is not None:
        base = compared_with(names, bases)
        yield column(f" vs {base}", "speedup", partial(_speedup, bases))
        yield column(": faster from N", "faster_from", _faster_from)
    if steps:
        yield column(": exponent of time", "time_exponent", exponent)
        yield column(": TTFT, ms", "ttft_ms", partial(time, key="ttft_s"))
        yield column(": state", STATE, lambda row: number(row[STATE] / row["batch"], units.size))
        yield column(
            ": state per token", "token_bytes", lambda row: number(row["token_bytes"], units.size)
        )
    else:
        yield column(": peak, MiB", "peak_mib", lambda row: counted(row[MEMORY] / units.MIB))


def _speedup(baselines: Sequence[str], row: Row) -> Cell:
    """`24.7× [23.5, 25.9]`, `2.8× slower [2.3, 3.3]`, or `within 1.1×` if either may be faster."""
    point, low, high = (row[name] for name in ("ratio", "ratio_low", "ratio_high"))
    if not units.has_value(point):
        return Cell("1", 1.0) if row["series"] in baselines and row[TIME] > 0 else EMPTY
    if low <= 1 <= high:
        within = f"within {units.ratio(max(high, 1 / low))}"
        return Cell(within, point, low, high)
    return speedup_cell(point, low, high, factor)


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
            return Cell(NEVER if back.at_most else f"up to {back.text}")
    return Cell(str(CrossoverKind.UNCLEAR)) if units.has_value(row["ratio"]) else EMPTY


def not_measured(missing: Sequence[Unmeasured], every: Sequence[int]) -> Table:
    """A row for each series and its modes, with reasons; `every` are the lengths of the plan."""
    said: dict[tuple[str, str], list[str]] = {}
    for (series, mode), own in groupby(missing, attrgetter("series", "mode")):
        reasons: dict[str, list[int]] = {}
        for lost in sorted(own, key=attrgetter("lengths")):
            reasons.setdefault(_reason(lost), []).extend(lost.lengths)
        parts = []
        for reason, lengths in reasons.items():
            parts.append(
                f"{', '.join(between(sorted(lengths), every, units.tick, '–'))} ({reason})"
            )
        said.setdefault((series, ", ".join(parts)), []).append(mode)
    return table(
        said.items(),
        [
            Column("Mechanism", lambda row: words(row[0][0]), "series"),
            Column("Mode", lambda row: words(", ".join(row[1])), "modes"),
            Column("Lengths", lambda row: words(row[0][1])),
        ],
        name="not_measured",
        title="Not measured",
        note="outcomes.csv has every case, with its reason in full and its predicted cost."
        if said
        else "",
    )


def _reason(lost: Unmeasured) -> str:
    """`budget`; `failed: …` where a short reason says more."""
    says, full = (Outcome.CRASHED, Outcome.FAILED, Outcome.UNSUPPORTED), clean(lost.reason)
    more = f": {full}" if lost.outcome in says and 0 < len(full) <= LONGEST_REASON else ""
    return _ended(lost) + more


def _ended(lost: Unmeasured) -> str:
    """`budget`, `out of memory`: what ended a series, in a word or two."""
    return outcome_phrase(lost.outcome, lost.cause).removeprefix("over ")


def between(
    lengths: Sequence[int],
    every: Sequence[int],
    text: Callable[[int], str] = units.count,
    to: str = " to ",
) -> list[str]:
    """`128 to 512`, `4,096`: a text for each run of lengths that are neighbours in `every`."""
    runs: list[list[int]] = []
    for length in lengths:
        if runs and every.index(length) == every.index(runs[-1][-1]) + 1:
            runs[-1].append(length)
        else:
            runs.append([length])
    return [to.join(dict.fromkeys((text(run[0]), text(run[-1])))) for run in runs]
