"""What a sweep found: a sentence for each question, and a table of the answers in each mode.

Every sentence and cell is written from conclusions of `analysis`, and names the lengths at which
they hold.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from math import inf
from types import MappingProxyType

from attnbench.analysis import Analysis, Answer, Basis, Conclusion, Expected, Frame, Question, Row
from attnbench.analysis.answers import Front, UnmeasuredLengths
from attnbench.analysis.summary import DEVICE_TIME
from attnbench.errors import clean
from attnbench.records import PASSES, metrics, modes, units
from attnbench.report.cases import outcome_phrase
from attnbench.report.cost_tables import (
    APART,
    MISSED,
    batch_at,
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
from attnbench.report.grid import EMPTY, Cell, Column, Table, cut, number, table, words
from attnbench.report.names import MARK, baseline_label, full_names
from attnbench.report.phrases import between, faster_at, in_order
from attnbench.report.styles import labels

TITLE = "What the sweep found"
MOST = 5  # series that a list names
HEADINGS: Mapping[Question, str] = MappingProxyType({
    Question.FASTEST: "Fastest",
    Question.SMALLEST_STATE: "Smallest state",
    Question.LEAST_MEMORY: "Least memory",
})  # fmt: skip
# with which the names of the tables begin that have the numbers of an answer
CELLS: Mapping[Question, str] = MappingProxyType({
    Question.FASTEST: "latency",
    Question.SMALLEST_STATE: "state",
    Question.LEAST_MEMORY: "memory",
})  # fmt: skip
LIMITS = "Limits of length"
UNMEASURED = "Not measured"
BEYOND_PAPERS = ("_faster_from", "_longest")  # ends of the keys of columns that papers leave out
PER_PAIR = (
    "Each speed-up has a 95 % interval of its own. The “fastest” line is stricter than the table:"
    " it allows for many comparisons, so two may tie there although the interval of their ratio"
    " excludes 1. “Faster at N” names lengths at which both were timed; a length in between is"
    " interpolated, and its brackets are measured lengths."
)


def sentences(analysis: Analysis) -> dict[str, str]:
    """The answer to each question, a sentence of plain text by its heading, in reading order."""
    answers = analysis.answers
    names = labels(analysis.answers.series, analysis.suspects)
    by_heading = {}
    if not answers.fastest:
        by_heading["Fastest"] = "Nothing of what was timed is ranked; the warnings say why."
    if not answers.timed:
        by_heading["Fastest"] = "Nothing was timed."
    by_heading |= {
        heading: f"{'; '.join(parts)}." for heading, parts in _led_in_modes(analysis, names)
    }
    if limits := [*_limits(analysis.about(Question.LIMIT), names)]:
        by_heading[LIMITS] = f"{'; '.join(_few(limits))}."
    if answers.missing:
        counts: Counter[str] = Counter()
        for lost in answers.missing:
            counts[_ended(lost.outcome, lost.cause)] += len(lost.lengths)
        reasons = ", ".join(f"{units.count(n)} {reason}" for reason, n in counts.most_common())
        cases = units.many(answers.cases, "case")
        by_heading[UNMEASURED] = f"{units.count(counts.total())} of {cases} ({reasons})."
    return by_heading


def _led_in_modes(analysis: Analysis, names: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """The heading of each question in each mode, and who leads there, as `_leaders` says it."""
    for question, heading in HEADINGS.items():
        answered = [one for one in analysis.about(question) if one.series]
        for where, alike in groupby(answered, key=_where):
            yield f"{heading} in {where}", [*_leaders([*alike], names)]


def lead(analysis: Analysis) -> dict[str, str]:
    """The sentence above a page's chart, by its heading: the first answer at its longest lengths.

    `sentences` has it in full. Empty if the sweep found nothing.
    """
    names = labels(analysis.answers.series, analysis.suspects)
    for heading, parts in _led_in_modes(analysis, names):
        return {heading: f"{parts[0]}."}
    return dict([*sentences(analysis).items()][:1])


def cells(analysis: Analysis) -> dict[str, str]:
    """The name of the table with the numbers behind each of `sentences`, by its heading."""
    places = {
        f"{HEADINGS[question]} in {_where(one)}": f"{name}_{one.mode}"
        for question, name in CELLS.items()
        for one in analysis.about(question)
    }
    return places | dict.fromkeys((LIMITS, UNMEASURED), "not_measured")


def _where(conclusion: Conclusion) -> str:
    """`training`, `decode, S=4`, `decode, steps of 4 tokens`."""
    scope = conclusion.scope
    if not scope.sizes and scope.step > 1:
        return f"{conclusion.mode}, steps of {scope.step} tokens"
    return ", ".join(filter(None, (conclusion.mode, scope.sizes)))


def _leaders(conclusions: Sequence[Conclusion], names: Mapping[str, str]) -> Iterator[str]:
    """Who leads, and where, of one question and mode: the longest lengths first.

    Lengths with the same answer are told together, and last those with nothing to compare. What is
    predicted to need more changes no answer, and may differ among them.
    """
    groups: dict[object, list[Conclusion]] = {}
    for one in conclusions:
        series = one.series[:1] if one.answer is Answer.NOT_KNOWN else frozenset(one.series)
        alike = one.answer, series, one.expected(Expected.LESS), one.expected(Expected.UNKNOWN)
        groups.setdefault(alike, []).append(one)

    def order(group: Sequence[Conclusion]) -> tuple[bool, int]:
        return group[0].answer is Answer.ALONE, -group[-1].scope.lengths[-1]

    return (_led(group, names) for group in sorted(groups.values(), key=order))


def _led(alike: Sequence[Conclusion], names: Mapping[str, str]) -> str:
    """`Fastformer at 2,048 to 8,192 (of 3 measured; Linformer needs 1.13× as much at 8,192)`.

    Who leads at these lengths, among how many if some were left out, by how much at the longest,
    and what else is expected to need less.
    """
    last = alike[-1]
    lengths = [n for one in alike for n in one.scope.lengths]
    where = f"at {in_order(between(lengths, last.scope.of_sweep))}"
    leaders = in_order(_few([names[name] for name in last.series]))
    match last.answer:
        case Answer.ALONE:
            text = f"{leaders} alone was measured {where}"
        case Answer.NOT_KNOWN:
            text = f"no winner after one round {where}, lowest so far {leaders}"
        case Answer.TIE:
            text = f"{leaders} tie {where}"
        case _:
            text = f"{leaders} {where}"
    further = [*_compared(alike, names)]
    return f"{text} ({'; '.join(further)})" if further else text


def _compared(alike: Sequence[Conclusion], names: Mapping[str, str]) -> Iterator[str]:
    """With what the leaders of some lengths were compared, and what was left out there."""
    last = alike[-1]
    if last.answer is not Answer.ALONE and any(one.left_out for one in alike):
        counts = [one.measured for one in alike]
        yield f"of {units.between(min(counts), max(counts))} measured"
    if last.answer is Answer.WINNER:
        ratio = factor(last.value.point, last.value.low, last.value.high)
        yield f"{names[last.rival]} needs {ratio} as much at {units.count(last.scope.lengths[-1])}"
    for expected in (Expected.LESS, Expected.MORE):
        if predicted := in_order([*_predicted(alike, expected, names)]):
            yield f"{expected}: {predicted}"
    if unknown := last.expected(Expected.UNKNOWN):
        yield f"not known: {', '.join(_few([names[name] for name in unknown]))}"


def _predicted(
    alike: Sequence[Conclusion], expected: Expected, names: Mapping[str, str]
) -> Iterator[str]:
    """`Transformer 3.40×, Linformer 1.20× at 8,192`: what was left out, over the least measured.

    At the longest of these lengths at which it was left out, which is told if there are several.
    """
    longest: dict[str, tuple[int, float]] = {}
    for one in alike:
        for lost in one.left_out:
            if lost.expected is expected:
                longest[lost.series] = one.scope.lengths[-1], lost.over
    by_length: dict[int, list[str]] = {}
    for series, (seq_len, over) in longest.items():
        by_length.setdefault(seq_len, []).append(f"{names[series]} {units.ratio(over)}")
    for seq_len in sorted(by_length, reverse=True):
        at = f" at {units.count(seq_len)}" if len(alike) > 1 else ""
        yield f"{', '.join(_few(by_length[seq_len]))}{at}"


def _limits(limits: Iterable[Conclusion], names: Mapping[str, str]) -> Iterator[str]:
    """`Transformer (eager) at 8,192 in training (memory, predicted)`: where each series ended."""
    for one in sorted(limits, key=lambda one: one.value.point):
        why = outcome_phrase("", one.reason).removeprefix("over ")
        basis = ", predicted" if one.basis is Basis.PREDICTED else ""
        where = f"{units.count(one.value.point)} in {one.mode}"
        yield f"{names[one.series[0]]} at {where} ({why}{basis})"


def _few(items: Sequence[str]) -> Sequence[str]:
    """The items, or the first of them and how many more there are."""
    more = len(items) - MOST
    return items if more <= 1 else [*items[:MOST], f"{units.count(more)} more"]


def answer(analysis: Analysis) -> list[Table]:
    """The answer in each mode, at its own common front; none where nothing was timed.

    A row for each series: the time, the speed-up over the baseline, the lengths at which it is
    faster, on a GPU the share of its peak rate, and peak memory; in a mode that steps, the state.
    Where most series went much further, also the longest length of each.
    """
    return [_of_mode(analysis, front) for front in analysis.answers.fronts]


def in_modes(
    answers: Sequence[Table], fronts: Sequence[Front]
) -> tuple[Table, list[tuple[str, int]]]:
    """The answers of all modes side by side, and the heading of each with its count of columns.

    Without the lengths at which each is faster and the longest of each, for which papers have no
    room: the table of each mode has them. A series that a mode lacks has dashes there.
    """
    names = dict.fromkeys(row[0].text for one in answers for row in one.rows)
    rows: dict[str, list[Cell]] = {name: [words(name)] for name in names}
    columns = ["Mechanism"]
    groups = []
    for one, front in zip(answers, fronts, strict=True):
        kept = [i for i, key in enumerate(one.keys) if i and not key.endswith(BEYOND_PAPERS)]
        columns += [one.columns[i] for i in kept]
        groups.append(
            (f"{modes.find(front.mode).title}, N = {units.count(front.seq_len)}", len(kept))
        )
        row_of = {row[0].text: row for row in one.rows}
        for name, cells in rows.items():
            cells += [row_of[name][i] if name in row_of else EMPTY for i in kept]
    marks = (MARK, MISSED["uncounted"][1], APART["apart"][1])
    notes = [mark for mark in marks if any(mark in one.note for one in answers)]
    titles = [f"{one.title}." for one in answers]
    both = Table(
        name="answer",
        title="The answer",
        columns=tuple(columns),
        rows=tuple(map(tuple, rows.values())),
        note=" ".join([*titles, *notes, "The table of each mode has further columns and notes."]),
    )
    return both, groups


def _of_mode(analysis: Analysis, front: Front) -> Table:
    names = labels(analysis.answers.series, analysis.suspects)
    mode = front.mode
    rows = analysis.rows[analysis.rows["mode"] == mode]
    of_series = {str(row["series"]): row for _, row in rows.iterrows()}
    times = rows.set_index("series")[metrics.TIME].dropna()
    shown = sorted(
        of_series, key=lambda series: (series in analysis.suspects, times.get(series, inf))
    )
    tokens = analysis.sweep.request.batch_tokens
    of = f", {batch_at(rows, tokens, front.seq_len)}" if mode in PASSES else ""
    return table(
        shown,
        [Column("Mechanism", words, "series"), *_columns(analysis, front, of_series)],
        name=f"answer_{mode}",
        title=f"The answer in {mode} at N = {units.count(front.seq_len)} ({timed_by(rows)}{of}"
        f"{per_layer(rows)}){''.join(_failed(analysis, front, names))}",
        note=" ".join(_notes(analysis, front, names)),
    )


def _failed(analysis: Analysis, front: Front, names: Mapping[str, str]) -> Iterator[str]:
    """What a heading says of a series that was chosen to compare with, and was not timed there."""
    if analysis.speedups is not None and (lost := analysis.not_compared(front.mode)):
        of_mode = analysis.cases[analysis.cases["mode"] == front.mode]
        there = of_mode[of_mode["seq_len"] == front.seq_len].set_index("series")
        for name in lost:
            case = there.loc[name] if name in there.index else None
            ended = None if case is None else _ended(str(case["outcome"]), str(case["cause"]))
            yield f"; not compared with {names[name]}, which has no time there"
            yield f" ({ended})" if ended else ""


def _notes(analysis: Analysis, front: Front, names: Mapping[str, str]) -> Iterator[str]:
    """With what the series are compared, and how far each went."""
    bases = analysis.baselines_by_mode[front.mode]
    if analysis.speedups is not None:
        alike = " of the same sizes" if len(bases) > 1 else ""
        chosen = "" if {*analysis.against} & {*bases} else "; --against chooses another"
        base = baseline_label(names, bases, analysis.suspects)
        yield f"Compared with {base}{alike}{chosen}."
        rows = analysis.rows[(analysis.rows["mode"] == front.mode) & analysis.rows["ratio"].notna()]
        if not rows["paired"].all():
            yield APART["apart"][1]
    yield _reach(front)
    yield from _deciding(analysis, front.mode)
    cases = analysis.cases
    here = cases[(cases["mode"] == front.mode) & (cases["seq_len"] == front.seq_len)]
    if any(here["uncounted"]) and not modes.find(front.mode).steps:
        yield MISSED["uncounted"][1]
    if front is analysis.answers.fronts[-1]:
        yield from filter(None, (PER_PAIR * (analysis.speedups is not None), full_names(names)))


def _deciding(analysis: Analysis, mode: str) -> Iterator[str]:
    """What would decide at which lengths a series is faster than the baseline."""
    if analysis.speedups is None:
        return
    compared = analysis.baselines_by_mode[mode]
    every = analysis.about(Question.FASTER_FROM, mode, against=compared)
    options = dict.fromkeys(one.decided_by for one in every if not one.is_known)
    if ways := " or ".join(filter(None, options)):
        yield f"What is not known may be decided with {ways}."


def _reach(front: Front) -> str:
    """Why a mode is compared at this length, in a sentence."""
    length = units.count(front.seq_len)
    if front.is_common:
        one = "the one series that may be ranked"
        each = f"each of {units.count(front.series)} series" if front.series > 1 else one
        sentence = f"N = {length} is the longest length at which {each} was timed"
    else:
        sentence = (
            f"No length was timed for each of {units.count(front.series)} series; N = {length} is"
            f" the longest of those at which the most were, {units.count(front.timed)}"
        )
    last = "; the last column is the longest length of each" if front.is_short else ""
    return f"{sentence}{last}."


def _columns(analysis: Analysis, front: Front, rows: Mapping[str, Row]) -> Iterator[Column]:
    """The columns of a mode, whose cells are made from the names of series."""
    mode = front.mode
    frame = Frame([*rows.values()])
    steps = modes.find(mode).steps
    bases = analysis.baselines_by_mode[mode]

    def column(heading: str, key: str, cell: Callable[[Row], Cell]) -> Column:
        return Column(heading, lambda series: cell(rows[series]), f"{mode}_{key}")

    def time(row: Row) -> Cell:
        return measured_or_why(row, metrics.TIME, lambda row: milliseconds(row, row["batch_scale"]))

    def speedup(row: Row) -> Cell:
        if units.has_value(row["ratio"]):
            cell = speedup_cell(row["ratio"], row["ratio_low"], row["ratio_high"])
            mark = "" if row["paired"] else APART["apart"][0]
            return cell._replace(text=cell.text + mark)
        return Cell("1", 1.0) if row["series"] in bases and row[metrics.TIME] > 0 else EMPTY

    def faster(row: Row) -> Cell:
        conclusions = analysis.about(Question.FASTER_FROM, mode, row["series"], bases)
        return faster_at(next(iter(conclusions), None))

    def peak(row: Row) -> Cell:
        cell = counted(row[metrics.MEMORY] / units.MIB)
        mark = MISSED["uncounted"][0]
        return cell._replace(text=cell.text + mark) if row["uncounted"] else cell

    step = per_step(frame, "token")
    yield column(f"ms per {step}" if steps else "ms", "ms", time)
    if step != "token":
        token = partial(measured_or_why, metric=metrics.TIME, cell=of_token)
        yield column("ms per token", "token_ms", token)
    if analysis.speedups is not None:
        base = baseline_label(analysis.answers.series, bases, analysis.suspects)
        yield column(f"vs {base}", "speedup", speedup)
        yield column("faster at N", "faster_from", faster)
    if DEVICE_TIME in {*frame["clock"]}:
        share = partial(number, text=units.percent)
        yield column("of the peak", "peak_share", lambda row: share(row["peak_share"]))
    if steps:
        yield column(
            "state",
            metrics.STATE,
            lambda row: number(row[metrics.STATE] / row["batch"], units.size),
        )
    else:
        yield column("peak, MiB", "peak_mib", peak)
    if front.is_short:
        longest = partial(_longest, front)
        yield column("longest N", "longest", longest)


def _longest(front: Front, row: Row) -> Cell:
    """The longest length at which a series was timed."""
    length = front.reached.get(str(row["series"]))
    return EMPTY if length is None else number(length, units.count)


def not_measured(missing: Sequence[UnmeasuredLengths], every: Sequence[int]) -> Table:
    """A row for each series, mode and reason; `every` are the lengths of the plan."""
    return table(
        missing,
        [
            Column("Mechanism", lambda lost: words(lost.series), "series"),
            Column("Mode", lambda lost: words(lost.mode)),
            Column("Lengths", lambda lost: words(", ".join(between(lost.lengths, every)))),
            Column("Reason", _reason),
        ],
        name="not_measured",
        title="Not measured",
        note="The reason is that of the shortest of the lengths; “ …” ends one that is cut."
        " not_measured.csv has it whole, and cases.csv that of every case, with its predicted"
        " cost.",
    )


def _reason(lost: UnmeasuredLengths) -> Cell:
    """`budget: would exceed …`; a long text is cut at its end, and the value is whole."""
    ended = _ended(lost.outcome, lost.cause)
    full = clean(lost.reason)
    whole = ended if full in ("", ended) else f"{ended}: {full}"
    return Cell(cut(whole), whole)


def _ended(outcome: str, cause: str) -> str:
    """`budget`, `out of memory`: what ended a series, in a word or two."""
    return outcome_phrase(outcome, cause).removeprefix("over ")
