"""What a sweep found, in sentences that begin every report; and what to choose at one length."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from attnbench import units
from attnbench.analysis.answers import Against, Answers, Limit, Speed, Unmeasured
from attnbench.analysis.recommend import Basis, Choice, Excluded, Recommendation
from attnbench.analysis.standings import Place, Rival, Span
from attnbench.records import Mode, Outcome
from attnbench.render.cases import happened, why
from attnbench.render.cost_tables import WIDE, mebibytes
from attnbench.render.grid import EMPTY, Cell, Table, bare, bounded, clean, number, words

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


def paragraphs(found: Answers, most: int | None = None) -> list[Paragraph]:
    """The answers in reading order; lists name at most `most` series, if it is given."""
    return [p for p in _all(found, _Writer(names_of(found.series), most)) if p.sentences]


def _all(found: Answers, write: "_Writer") -> Iterator[Paragraph]:
    if not found.timed:
        yield Paragraph("Fastest", ("Nothing was timed.",))
    for mode, spans in groupby(found.fastest, lambda span: span.mode):
        alone = [] if found.intervals else ["After one round no difference in time is certain."]
        yield Paragraph(f"Fastest, {mode}", (*alone, *map(write.fastest, spans)))
    for mode, same in groupby(found.against, lambda against: against.mode):
        baseline = write.names[found.baseline or ""]
        yield Paragraph(f"Compared with {baseline}, {mode}", tuple(write.against([*same])))
    yield Paragraph("Limits of length", tuple(map(write.limit, found.limits)))
    for mode, spans in groupby(found.lightest, lambda span: span.mode):
        yield Paragraph(f"Smallest state, {mode}", tuple(map(write.smallest, spans)))
    for mode, spans in groupby(found.smallest, lambda span: span.mode):
        heading = f"Least memory, {mode}" + ", prompt included" * (mode == Mode.DECODE)
        yield Paragraph(heading, tuple(map(write.smallest, spans)))
    yield Paragraph("Not measured", tuple(write.missing(found)))
    if found.intervals and write.most is None:
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
            found = sorted((a for a in group if a.finding is finding), key=lambda a: -a.ratio)
            ends = {against.at for against in found}
            shared = len(ends) == 1 and finding is not Speed.APART
            where = f" (speed-up at {units.length(ends.pop())})" if shared else ""
            if found:
                yield f"{said}{where}: {self.listed([self.one(a, shared) for a in found])}."

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

    def missing(self, found: Answers) -> Iterator[str]:
        """How many cases, then a sentence for each reason."""
        if found.missing:
            lost = sum(reason.cases for reason in found.missing)
            yield f"{units.count(lost)} of {units.many(found.cases, 'case')}."
        yield from map(self.reason, found.missing)

    def reason(self, missing: Unmeasured) -> str:
        """`6 cases would have exceeded memory (transformer:eager, N = 16,384 to 65,536).`"""
        what = happened(missing.outcome, missing.cause)
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


def recommended(found: Recommendation) -> str:
    """`At N = 4,096 in inference: fastformer, 1.18× [1.02, 1.36] as fast as linformer.`"""
    names = names_of([choice.series for choice in found.choices])
    ranked = [choice for choice in found.choices if choice.rank is not None]
    where = f"At N = {units.length(found.seq_len)} in {found.mode}"
    if not ranked:
        guess = names[found.choices[0].series] if found.choices else ""
        least = f"; {guess} is predicted to take the least time" if guess else ""
        if found.memory_bytes is not None and found.excluded:
            return f"{where}: no measured series fits into {units.size(found.memory_bytes)}{least}."
        return f"{where}: no series was measured{least}."
    best, first = names[ranked[0].series], [choice for choice in ranked if choice.rank == 1]
    if len(ranked) == 1:
        text = f"{best}, the only series that was measured" + " and fits" * bool(found.memory_bytes)
    elif not ranked[1].margin.known:
        text = f"{best} took the least time; after one round no difference is certain"
    elif len(first) > 1:
        text = f"{in_order([names[choice.series] for choice in first])} tie"
    else:
        margin = ranked[1].margin
        text = f"{best}, {ratio(margin.factor, margin.low, margin.high)} as fast as"
        text += f" {names[ranked[1].series]}"
    return f"{where}: {text}."


def ranking(found: Recommendation) -> Table:
    """A row for each series: those to choose from, the best first, then the others."""
    if not found.choices:
        return _nothing(found)
    decode = found.mode == Mode.DECODE
    of = f"a batch of {units.count(found.tokens)} tokens" if found.tokens else "the sweep's batch"
    of = "one step" if decode else of
    notes = ["Series that tie share a rank."] * any(choice.rank for choice in found.choices)
    notes += [
        f"{WIDE[0].upper()}{WIDE[1:]} Times are of {of}, with 95 % confidence intervals; those of"
        " ratios to the first are simultaneous.",
        _peaks(found),
    ]
    if any(choice.basis is Basis.BETWEEN for choice in found.choices):
        notes.append("Between two measured lengths costs are interpolated in log–log.")
    if any(choice.basis is Basis.PREDICTED for choice in found.choices):
        notes.append("Predicted times have no interval and no rank.")
    return Table(
        name=f"ranking_{found.mode}",
        title=f"Ranking at N = {units.length(found.seq_len)}, {found.mode}",
        columns=(
            *("Mechanism", "Rank", "Time, ms", "Ratio to the first", "Peak, MiB"),
            *(("State",) * decode),
            "Basis",
        ),
        rows=(
            *(_choice(choice, decode) for choice in found.choices),
            *(_excluded(each, found, decode) for each in found.excluded),
        ),
        note=" ".join(notes),
    )


def _nothing(found: Recommendation) -> Table:
    """A row for each series, where none can be chosen."""
    rows = (_excluded(each, found, decode=False) for each in found.excluded)
    return Table(
        name=f"excluded_{found.mode}",
        title=f"Excluded at N = {units.length(found.seq_len)}, {found.mode}",
        columns=("Mechanism", "Peak, MiB", "Reason"),
        rows=tuple((name, peak, reason) for name, *_, peak, reason in rows),
        note=_peaks(found),
    )


def _peaks(found: Recommendation) -> str:
    prompt = ", prompt included" * (found.mode == Mode.DECODE)
    return f"Peak memory is that of the sweep's batch{prompt}."


def _choice(choice: Choice, decode: bool) -> tuple[Cell, ...]:
    predicted = choice.basis is Basis.PREDICTED
    time, low, high = (1e3 * value for value in (choice.seconds, choice.low, choice.high))
    margin = choice.margin
    factor = ratio(margin.factor, margin.low, margin.high) if margin.factor != 1 else "1"
    return (
        words(choice.series),
        EMPTY if choice.rank is None else number(choice.rank, str),
        Cell(f"≈ {units.plain(time)}", time) if predicted else bounded(time, low, high),
        Cell(factor, bare(margin.factor), bare(margin.low), bare(margin.high)),
        mebibytes(choice.peak_bytes),
        *((number(choice.state_bytes, units.size),) * decode),
        words(_basis(choice)),
    )


def _basis(choice: Choice) -> str:
    """`interpolated, 4,096 to 8,192`."""
    if len(choice.lengths) == 1:
        return str(choice.basis)
    return f"{choice.basis}, {' to '.join(map(units.length, choice.lengths))}"


def _excluded(excluded: Excluded, found: Recommendation, decode: bool) -> tuple[Cell, ...]:
    if excluded.ending:
        reason = excluded.reason or why(excluded.ending, excluded.ending)
    elif units.known(excluded.peak_bytes):
        reason = f"needs more than {units.size(found.memory_bytes or 0)}"
    else:
        reason = "its peak memory is not known"
    unknown = (EMPTY, EMPTY, EMPTY)
    peak, state = mebibytes(excluded.peak_bytes), (EMPTY,) * decode
    return (words(excluded.series), *unknown, peak, *state, words(reason))
