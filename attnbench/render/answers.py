"""What a sweep found, in sentences that begin every report; and what to choose at one length."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from math import inf
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

from attnbench import units
from attnbench.analysis.answers import Against, Answers, Limit, Speed, Unmeasured
from attnbench.analysis.recommend import Basis, Choice, Excluded, Recommendation
from attnbench.analysis.standings import Place, Rival, Span
from attnbench.records import PASSES, Outcome
from attnbench.render.cases import outcome_phrase, why
from attnbench.render.cost_tables import WIDE, counted
from attnbench.render.grid import (
    EMPTY,
    Cell,
    Column,
    Table,
    bare,
    bounded,
    clean,
    number,
    table,
    words,
)

TITLE = "What the sweep found"
LONGEST_REASON = 100  # characters
UNCERTAIN = 1000  # an interval whose ends differ by a larger factor says nothing
SAME = " (the same function)"
INTERVALS = (
    "Those of the fastest are simultaneous: in 95 % of sweeps they all contain the true ratio, for"
    " all pairs of series at all lengths together; a tie is a ratio whose interval contains 1.",
    "Those of speed-ups and crossovers hold for each one separately, at 95 %.",
)

SPEEDS: Mapping[Speed, str] = MappingProxyType({
    Speed.FASTER: "Faster at every common length",
    Speed.FASTER_FROM: "Faster from a length on",
    Speed.SLOWER_FROM: "Slower from a length on",
    Speed.SLOWER: "Slower at every common length",
    Speed.UNCLEAR: "Cannot tell",
    Speed.APART: "No length in common",
})  # fmt: skip


class Paragraph(NamedTuple):
    """A few sentences of plain text on one question; the heading has no full stop."""

    heading: str
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """`Least memory, training: N = …`."""
        return f"{self.heading}: {' '.join(self.sentences)}"


def paragraphs(answers: Answers, most: int | None = None) -> list[Paragraph]:
    """The answers in reading order; lists name at most `most` series, if it is given."""
    return [p for p in _all(answers, _Writer(names_of(answers.series), most)) if p.sentences]


def _all(answers: Answers, write: "_Writer") -> Iterator[Paragraph]:
    if not answers.timed:
        yield Paragraph("Fastest", ("Nothing was timed.",))
    for mode, spans in groupby(answers.fastest, lambda span: span.mode):
        alone = [] if answers.intervals else ["After one round no difference in time is certain."]
        yield Paragraph(f"Fastest, {mode}", (*alone, *map(write.fastest, spans)))
    for mode, same in groupby(answers.against, lambda against: against.mode):
        baseline = write.names[answers.baseline or ""]
        yield Paragraph(f"Compared with {baseline}, {mode}", tuple(write.against([*same])))
    yield Paragraph("Limits of length", tuple(map(write.limit, answers.limits)))
    for mode, spans in groupby(answers.lightest, lambda span: span.mode):
        yield Paragraph(f"Smallest state, {mode}", tuple(map(write.smallest, spans)))
    for mode, spans in groupby(answers.smallest, lambda span: span.mode):
        heading = f"Least memory, {mode}" + ", prompt included" * (mode not in PASSES)
        yield Paragraph(heading, tuple(map(write.smallest, spans)))
    yield Paragraph("Not measured", tuple(write.missing(answers)))
    if answers.intervals and write.most is None:
        yield Paragraph("Confidence intervals", INTERVALS)


class _Writer:
    """Sentences with the labels of the series."""

    def __init__(self, names: Mapping[str, str], most: int | None) -> None:
        self.names, self.most = names, most

    def fastest(self, span: Span) -> str:
        """`N = 512 to 2,048: fastformer, 1.18× [1.02, 1.36] as fast as linformer at 2,048.`"""
        last = span.places[-1]
        first = self.names[last.first]
        if last.measured == 1:
            text = f"only {first} was measured"
        elif last.unsure:
            text = f"{first} took the least time"
        elif last.ties:
            text = self.tie(last) + _possible(span)
        else:
            text = f"{first}, {self.lead(last)}" + _at(span)
        return f"{_range(span)}: {text}{self.among(span)}."

    def smallest(self, span: Span) -> str:
        """`N = 128 to 256: linformer, 254.4 MiB; fastformer takes 1.20× as much at 256.`"""
        last = span.places[-1]
        first, cost = self.names[last.first], units.size(last.cost)
        if last.measured == 1:
            text = f"only {first} was measured, {cost}{_at(span)}"
        elif last.ties:
            text = f"{self.tie(last)}, {cost}{_at(span)}"
        else:
            text = f"{first}, {cost}{_at(span)}"
        if last.rest is not None:
            factor = units.ratio(last.rest.margin.factor)
            text += f"; {self.rival(last.rest)} takes {factor} as much"
        return f"{_range(span)}: {text}."

    def tie(self, place: Place) -> str:
        """`fastformer and linformer tie`."""
        names = [self.names[name] for name in (place.first, *(r.series for r in place.ties))]
        same = all(rival.same_function for rival in place.ties)
        return f"{self.listed(names)}{', forms of the same function,' if same else ''} tie"

    def lead(self, place: Place) -> str:
        """`1.18× [1.02, 1.36] as fast as linformer`."""
        assert place.rest is not None, "a first series that leads leads another one"
        margin = place.rest.margin
        factor = ratio(margin.factor, margin.low, margin.high)
        return f"{factor} as fast as {self.rival(place.rest)}"

    def rival(self, rival: Rival) -> str:
        return self.names[rival.series] + SAME * rival.same_function

    def among(self, span: Span) -> str:
        """How many series were measured, unless all or only one were."""
        counts = sorted({place.measured for place in span.places})
        if counts[0] == 1 or counts[0] == len(self.names):
            return ""
        return f" ({units.between(counts[0], counts[-1])} of {len(self.names)} series measured)"

    def against(self, group: Sequence[Against]) -> Iterator[str]:
        """A sentence for each finding, the largest speed-ups first."""
        for finding, said in SPEEDS.items():
            same = sorted((a for a in group if a.finding is finding), key=lambda a: -a.ratio)
            ends = {against.at for against in same}
            shared = len(ends) == 1 and finding is not Speed.APART
            where = f" (speed-up at {units.length(ends.pop())})" if shared else ""
            if same:
                yield f"{said}{where}: {self.listed([self.one(a, shared) for a in same])}."

    def one(self, against: Against, shared: bool) -> str:
        """`longformer from 286 [254, 321], 10.5× [9.87, 11.1]`."""
        name = self.names[against.series] + SAME * against.same_function
        if against.finding is Speed.APART:
            return name
        if units.known(against.length):
            ends = (against.length, against.low, against.high)
            edge = "≤ " if round(against.length) <= against.shortest else ""
            crossing = units.interval(*(units.length(round(end)) for end in ends))
            name += f" from {edge}{crossing},"
        text = f"{name} {ratio(against.ratio, against.ratio_low, against.ratio_high)}"
        return text if shared else f"{text} at {units.length(against.at)}"

    def limit(self, limit: Limit) -> str:
        """`transformer:eager in training: measured up to 4,096; 16,384 would exceed memory.`"""
        fits = "nothing measured"
        if limit.fits is not None:
            fits = f"measured up to {units.length(limit.fits)}"
        if limit.is_predicted:
            ends = "would exceed " + ("memory" if limit.is_memory else "the time limit of a case")
        else:
            ends = "ran out of memory" if limit.is_memory else "timed out"
        stops = units.length(limit.stops)
        return f"{self.names[limit.series]} in {limit.mode}: {fits}; {stops} {ends}."

    def missing(self, answers: Answers) -> Iterator[str]:
        """How many cases, then a sentence for each reason."""
        if answers.missing:
            lost = sum(reason.cases for reason in answers.missing)
            yield f"{units.count(lost)} of {units.many(answers.cases, 'case')}."
        yield from map(self.reason, answers.missing)

    def reason(self, missing: Unmeasured) -> str:
        """`6 cases would have exceeded memory (transformer:eager, N = 16,384 to 65,536).`"""
        what = outcome_phrase(missing.outcome, missing.cause)
        who = [self.names[name] for name in missing.series]
        few = f"{self.listed(who)}, " if len(who) < 3 else ""
        lengths = f"N = {units.between(missing.shortest, missing.longest)}"
        why = clean(missing.reason)
        said = missing.outcome in (Outcome.CRASHED, Outcome.FAILED, Outcome.UNSUPPORTED)
        because = f": {why}" if said and 0 < len(why) <= LONGEST_REASON else ""
        return f"{units.many(missing.cases, 'case')} {what} ({few}{lengths}){because}."

    def listed(self, items: Sequence[str]) -> str:
        """`a, b and c`, or `a, b and 5 more`; items that hold commas are separated by `;`."""
        if self.most is not None and len(items) > self.most + 1:
            items = [*items[: self.most], f"{units.count(len(items) - self.most)} more"]
        if any(", " in item for item in items):
            return "; ".join(items)
        return in_order(items)


def ratio(point: float, low: float, high: float) -> str:
    """`1.18× [1.02, 1.36]`; without the interval where it is unknown or says nothing."""
    if not (units.known(low) and units.known(high)) or high > UNCERTAIN * low:
        return units.ratio(point)
    return units.interval(units.ratio(point), units.plain(low), units.plain(high))


def in_order(items: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(items[:-1]), items[-1])))


def names_of(series: Sequence[str]) -> dict[str, str]:
    """The name of each series: without options where it is unique without them."""
    bare = {name: name.partition("[")[0] for name in series}
    uses = Counter(bare.values())
    return {name: clean(short if uses[short] == 1 else name) for name, short in bare.items()}


def _possible(span: Span) -> str:
    """How far apart the series of a tie may be, by all their intervals."""
    margins = [rival.margin for place in span.places for rival in place.ties]
    widest = max(max(m.high, 1 / m.low if m.low else inf) for m in margins)
    if widest > UNCERTAIN:
        return "; differences of any size are possible"
    text = units.ratio(widest) if widest >= 2 else units.percent(widest - 1)
    return f"; differences up to {text} are possible" if widest > 1 else ""


def _at(span: Span) -> str:
    return f" at {units.length(span.places[-1].seq_len)}" if len(span.places) > 1 else ""


def _range(span: Span) -> str:
    """`N = 128 to 512`."""
    return f"N = {units.between(span.places[0].seq_len, span.places[-1].seq_len)}"


def recommended(advice: Recommendation) -> str:
    """`At N = 4,096 in inference: fastformer, 1.18× [1.02, 1.36] as fast as linformer.`"""
    names = names_of([choice.series for choice in advice.choices])
    ranked = [choice for choice in advice.choices if choice.rank is not None]
    where = f"At N = {units.length(advice.seq_len)} in {advice.mode}"
    if not ranked:
        guess = names[advice.choices[0].series] if advice.choices else ""
        least = f"; {guess} is predicted to take the least time" if guess else ""
        if advice.memory_bytes is not None and advice.excluded:
            return (
                f"{where}: no measured series fits into {units.size(advice.memory_bytes)}{least}."
            )
        return f"{where}: no series was measured{least}."
    best, first = names[ranked[0].series], [choice for choice in ranked if choice.rank == 1]
    if len(ranked) == 1:
        text = f"{best}, the only series that was measured" + " and fits" * bool(
            advice.memory_bytes
        )
    elif not ranked[1].margin.known:
        text = f"{best} took the least time; after one round no difference is certain"
    elif len(first) > 1:
        text = f"{in_order([names[choice.series] for choice in first])} tie"
    else:
        margin = ranked[1].margin
        text = f"{best}, {ratio(margin.factor, margin.low, margin.high)} as fast as"
        text += f" {names[ranked[1].series]}"
    return f"{where}: {text}."


def ranking(advice: Recommendation) -> Table:
    """A row for each series: those to choose from, the best first, then the others."""
    decode = advice.mode not in PASSES
    rows = [
        *map(_choice, advice.choices),
        *(_excluded(excluded, advice) for excluded in advice.excluded),
    ]
    place = f"at N = {units.length(advice.seq_len)}, {advice.mode}"
    peaks = f"Peak memory is that of the sweep's batch{', prompt included' * decode}."
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
        f"{WIDE[0].upper()}{WIDE[1:]} Times are of"
        f" {'one step' if advice.mode not in PASSES else batch}, with 95 % confidence intervals;"
        " those of ratios to the first are simultaneous."
    )
    yield peaks
    if any(choice.basis is Basis.BETWEEN for choice in advice.choices):
        yield "Between two measured lengths costs are interpolated in log–log."
    if any(choice.basis is Basis.PREDICTED for choice in advice.choices):
        yield "Predicted times have no interval and no rank."


def _choice(choice: Choice) -> dict[str, Cell]:
    time, low, high = (1e3 * value for value in (choice.seconds, choice.low, choice.high))
    predicted = Cell(f"≈ {units.plain(time)}", time)
    margin = choice.margin
    factor = ratio(margin.factor, margin.low, margin.high) if margin.factor != 1 else "1"
    between = f", {' to '.join(map(units.length, choice.lengths))}" * (len(choice.lengths) > 1)
    return {
        "Mechanism": words(choice.series),
        "Rank": EMPTY if choice.rank is None else number(choice.rank, str),
        "Time, ms": predicted if choice.basis is Basis.PREDICTED else bounded(time, low, high),
        "Ratio to the first": Cell(
            factor, bare(margin.factor), bare(margin.low), bare(margin.high)
        ),
        "Peak, MiB": counted(choice.peak_bytes / units.MIB),
        "State": number(choice.state_bytes, units.size),
        "Basis": words(f"{choice.basis}{between}"),
    }


def _excluded(excluded: Excluded, advice: Recommendation) -> dict[str, Cell]:
    if excluded.ending:
        reason = excluded.reason or why(excluded.ending, excluded.ending)
    elif units.known(excluded.peak_bytes):
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
