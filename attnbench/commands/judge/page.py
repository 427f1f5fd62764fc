"""The verdict on a user's function: sentences, the panel of its errors, and how fast it is."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from math import ceil, inf, isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.analysis import Analysis, Answer, Conclusion, Question, Value
from attnbench.errors import clean
from attnbench.records import Aspect, Attempt, Kernel, KernelFinding, PanelRow, units
from attnbench.report import cost_tables, grid, phrases

if TYPE_CHECKING:
    from attnbench.commands.judge.judging import KernelVerdict
    from attnbench.report import terminal

PANEL = (
    "Errors are against float64: of the output relative to the largest output, of a row to the"
    " largest number of the row, of a gradient to its own largest number. Ours: the mechanism's"
    " usual form on the same inputs; where a kernel errs by more than that explains, also the"
    " equations as written, if those err more. Right: within ten times our error on top of what is"
    " allowed of any form of the number type; a verdict names what exceeds that. Under stress fewer"
    " digits, down to half of them, are steady."
)
AXES = MappingProxyType({"bhnd": "[B, H, N, d]", "bnhd": "[B, N, H, d]"})
ALIKE = 0.1  # what differs by no more at any length is as fast
SILENT_S = 5.0  # before the first line of progress
EVERY_S = 10.0  # between such lines


class Waiting:
    """Says what is being tried, from the sixth second on."""

    def __init__(
        self, line: "terminal.ProgressLine", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.line = line
        self.clock = clock
        self.begun = clock()
        self.shown = self.begun + SILENT_S - EVERY_S
        self.count = 0

    def announce(self, text: str) -> None:
        """Show what is being tried, unless something was shown a moment ago."""
        self.count += 1
        now = self.clock()
        if now - self.begun >= SILENT_S and now - self.shown >= EVERY_S:
            self.shown = now
            self.line.show("", text, units.many(self.count, "step"), math.inf)


def lines(verdict: "KernelVerdict") -> Iterator[str]:
    """One line for a function among several."""
    if verdict.error:
        yield f"{clean(verdict.question.function)}: {clean(verdict.error)}"
    else:
        yield " ".join((headline(verdict), *unfinished_text(verdict), *speed_sentences(verdict)))


def sentences(verdict: "KernelVerdict") -> Iterator[str]:
    """The verdict, what was tried, what was not, and how the function was called."""
    yield headline(verdict)
    yield from unfinished_text(verdict)
    yield tried_text(verdict)
    yield from untried_texts(verdict)
    yield call_text(verdict)
    yield from notes(verdict)


def headline(verdict: "KernelVerdict") -> str:
    """`f as transformer (float32, cpu): right (N = 1 to 8,192); steady (N = 512 to 8,192).`"""
    qualities = "; ".join(aspect_text(aspect, verdict) for aspect in Aspect)
    doubts = ""
    if verdict.suspect:
        doubts = f" SUSPECT: in the race it {verdict.suspect};"
    if verdict.failed:
        doubts += f" it FAILED in the race ({clean(verdict.failed)});"
    if doubts:
        doubts += " before that"
    if verdict.changed:
        doubts = f" it CHANGES torch's {verdict.changed};{doubts}"
    return f"{subject_text(verdict)} ({verdict.dtype}, {verdict.device}):{doubts} {qualities}."


def subject_text(verdict: "KernelVerdict") -> str:
    """`f as kimi_delta`."""
    question = verdict.question
    return f"{clean(str(question.candidate.form))} as {question.mechanism}"


def aspect_text(aspect: Aspect, verdict: "KernelVerdict") -> str:
    """`right (N = 1 to 8,192)`, or where it is not."""
    rows = [row for row in verdict.rows if row.attempt.aspect is aspect]
    failing = [row for row in rows if not row.passes]
    if failing:
        others = f"; {len(failing) - 1} more of {len(rows)} attempts" if len(failing) > 1 else ""
        return f"NOT {aspect} ({place_text(failing[0])}{others})"
    attempts = [row.attempt for row in rows if row.tried]
    if not attempts:
        return f"not known whether {aspect}"
    as_far = "" if verdict.complete else ", as far as it was tried"
    ranges = {
        causal: range_text(a.tokens for a in attempts if a.causal == causal)
        for causal in causal_values(attempts)
    }
    graded = lengths_with_gradients(rows)
    if aspect is Aspect.RIGHT and graded and max(graded) < max(a.tokens for a in attempts):
        as_far = f"; gradients to N = {units.count(max(graded))}{as_far}"
    if len(set(ranges.values())) == 1:
        text = f"N = {next(iter(ranges.values()))}"
    else:
        text = "; ".join(f"{mode_text(causal)} N = {lengths}" for causal, lengths in ranges.items())
    return f"{aspect} ({text}{as_far})"


def lengths_with_gradients(rows: Iterable[PanelRow]) -> list[int]:
    """The lengths at which gradients were compared; with a mask alone is not enough."""
    return [row.attempt.tokens for row in rows
            if row.compares_gradients and not row.attempt.masked]  # fmt: skip


def causal_values(attempts: Iterable[Attempt]) -> tuple[bool, ...]:
    """The values of `causal`, in the order in which they were tried."""
    return tuple(dict.fromkeys(attempt.causal for attempt in attempts))


def mode_text(causal: bool) -> str:
    """`causal` or `not causal`."""
    return "causal" if causal else "not causal"


def range_text(lengths: Iterable[int]) -> str:
    """`1 to 8,192`."""
    ascending = sorted(lengths)
    return units.between(ascending[0], ascending[-1])


def place_text(row: PanelRow) -> str:
    """`masked, causal, at N = 100: wrong: dk`, with the sizes that are unusual."""
    attempt = row.attempt
    parts = [attempt.inputs, *(["causal"] if attempt.causal else [])]
    at = f"at N = {units.count(attempt.tokens)}, d = {row.head_width or '?'}"
    reason = f": {clean(row.reason)}" if row.reason else ""
    return f"{', '.join(parts)}, {at}: {row.finding}{reason}"


def unfinished_text(verdict: "KernelVerdict") -> Iterator[str]:
    """That attempts were not made which belong to a verdict, and what would make them."""
    if not verdict.complete and not verdict.faulty:
        count = sum(row.finding is KernelFinding.UNTRIED for row in verdict.rows)
        attempts = f"{count} of {units.many(len(verdict.rows), 'attempt')}"
        way_out = f"; {verdict.more_time} may decide it" if verdict.more_time else ""
        yield f"NOT FINISHED: {attempts} were not made, so nothing is decided{way_out}."


def tried_text(verdict: "KernelVerdict") -> str:
    """The sizes and modes that were compared; those of the race are among them."""
    rows = [row for row in verdict.rows if row.tried]
    attempts = [row.attempt for row in rows]
    lengths = numbers_text(attempt.tokens for attempt in attempts)
    ways = " and ".join(map(mode_text, causal_values(attempts)))
    masked = ", masked" if any(attempt.masked for attempt in attempts) else ""
    gradients = lengths_with_gradients(rows)
    asked = any(attempt.gradients for attempt in attempts)
    if not rows:
        return "Nothing was tried."
    if gradients:
        backward = f"gradients to N = {units.count(max(gradients))}"
    elif asked:
        backward = "without gradients, as it has no backward pass"
    else:
        backward = "without gradients"
    calls = max((row.calls for row in rows), default=1)
    repeats = f"; the same call {units.count(calls)} times" if calls > 1 else ""
    widths = numbers_text(row.head_width for row in rows if row.head_width)
    heads = numbers_text(attempt.heads for attempt in attempts)
    batches = numbers_text(attempt.batch for attempt in attempts)
    return (
        f"Tried at N = {lengths}; heads of width {widths};"
        f" {heads} heads; {batches} sequences; {ways}{masked}; {backward}{repeats}."
        " Nothing is known beyond."
    )


def numbers_text(numbers: Iterable[int]) -> str:
    """`1, 17 and 8,192`: each number once."""
    return phrases.in_order([units.count(each) for each in sorted(set(numbers))])


def untried_texts(verdict: "KernelVerdict") -> Iterator[str]:
    """What was to be tried, and was not, with the reasons."""
    for finding, heading in (
        (KernelFinding.UNTRIED, "Not tried"),
        (KernelFinding.REFUSED, "It refuses"),
    ):
        rows = [row for row in verdict.rows if row.finding is finding]
        by_reason: dict[str, list[str]] = {}
        for row in rows:
            place = f"{row.attempt.inputs} at N = {units.count(row.attempt.tokens)}"
            by_reason.setdefault(row.reason, []).append(place)
        for reason, places in by_reason.items():
            yield f"{heading}: {units.few(dict.fromkeys(places), 4)} ({clean(reason)})."
    kernel = verdict.kernel
    if kernel and kernel.refused:
        widths = ", ".join(kernel.refused)
        reason = clean(next(iter(kernel.refused.values())))
        yield (
            f"Judged with heads of width {kernel.head_width}, as it refuses those of {widths}"
            f" ({reason})."
        )


def call_text(verdict: "KernelVerdict") -> str:
    """How the function was called, and how it errs if it is called otherwise."""
    kernel = verdict.kernel
    if kernel is None:
        return ""
    text = f"Called with {AXES[str(kernel.options['axes'])]}"
    if kernel.options.get("scales"):
        text += ", q not scaled, as it scales q by d^-0.5 itself"
    if kernel.mask:
        text += f", a mask as {kernel.mask}"
    if kernel.uncompared_mask:
        text += f", without {kernel.uncompared_mask}, with which every call raised"
    if kernel.options.get("lower_bound") is not None:
        text += f", logs of decays of at least {kernel.options['lower_bound']}"
    if len(kernel.modes) == 1 and "causal" in kernel.untaken:
        text += f", {'causal' if kernel.modes[0] else 'not causal'}"
    worse = [
        f"as {way} it errs by {error_cell(error).text}" for way, error in kernel.worse_ways.items()
    ]
    text += f" ({'; '.join(worse)})" if worse else ""
    if kernel.untaken:
        text += f"; without {', '.join(kernel.untaken)}, which it does not take"
    return f"{text}."


def notes(verdict: "KernelVerdict") -> Iterator[str]:
    """What is to be known besides: other number types, and what is not exact in float64."""
    types = {f"in {row.attempt.dtype} it {row.note}" for row in verdict.rows if row.note}
    if types:
        yield f"{units.capitalised('; '.join(sorted(types)))}."
    narrow = [row.attempt.tokens for row in verdict.rows
              if row.reference not in ("", "float64")]  # fmt: skip
    if narrow:
        yield (
            f"At N = {numbers_text(narrow)} memory did not allow float64: compared with our form in"
            f" {verdict.dtype}."
        )


def panel(verdict: "KernelVerdict") -> grid.Table:
    """A row for each of the inputs: the errors of the function and of our form, and the verdict."""
    return grid.table(
        verdict.rows,
        [
            grid.Column("Inputs", lambda row: grid.words(inputs_text(row, verdict.kernel))),
            grid.Column("N", lambda row: grid.number(row.attempt.tokens, units.count)),
            grid.Column("Worst", lambda row: grid.words(row.worst)),
            grid.Column("Error", lambda row: error_cell(row.errors.get(row.worst))),
            grid.Column("Ours", lambda row: error_cell(row.ours.get(row.worst))),
            grid.Column("Verdict", lambda row: grid.words(finding_text(row))),
            grid.Column("B", lambda row: grid.number(row.attempt.batch, units.count)),
            grid.Column("H", lambda row: grid.number(row.attempt.heads, units.count)),
            grid.Column("d", lambda row: grid.Cell(str(row.head_width or "–"))),
        ],
        leading=2,
        name="panel",
        title=f"Errors of {subject_text(verdict)}",
        note=PANEL,
    )


def inputs_text(row: PanelRow, kernel: Kernel | None = None) -> str:
    """`as raced, causal`; `as usual, d = 64` where heads have another width than in the race."""
    attempt = row.attempt
    inputs = attempt.inputs
    if attempt.raced:
        inputs = "as raced, masked" if attempt.masked else "as raced"
    usual = kernel.head_width if kernel else row.head_width
    width = f", d = {row.head_width}" if row.head_width not in (0, usual) else ""
    return f"{inputs}{width}{', causal' if attempt.causal else ''}"


def finding_text(row: PanelRow) -> str:
    """`wrong: dk, dv`."""
    return f"{row.finding}: {row.reason}" if row.reason else str(row.finding)


def error_cell(value: float | None) -> grid.Cell:
    """`8.6e-08`, or that it is not finite."""
    if value is None:
        return grid.EMPTY
    return grid.Cell(f"{value:.1e}", value) if isfinite(value) else grid.Cell("not finite")


def speed_sentences(verdict: "KernelVerdict") -> Iterator[str]:
    """At which of the lengths that were raced the function is faster."""
    race = verdict.race
    if race is None:
        yield f"Not raced: {verdict.unraced or 'nothing was timed'}."
        return
    if verdict.suspect:
        yield f"Its times are compared with nothing: in the race it {verdict.suspect}."
        return
    yield from speed_by_mode(race, verdict.more_time)
    if verdict.untrained:
        way_out = f"; {verdict.more_time} may allow it" if verdict.more_time else ""
        at = f"N = {numbers_text(verdict.untrained)}"
        yield f"Not raced in training at {at}, as no gradients were compared there{way_out}."
    kernel = verdict.kernel
    if kernel and len(kernel.modes) > 1:
        other = "--no-causal" if verdict.raced_as else "--causal"
        yield f"Raced {mode_text(verdict.raced_as)}; {other} races the other."


def speed_by_mode(race: Analysis, more_time: str = "") -> Iterator[str]:
    """A sentence for each mode of a race; `more_time`: the option that gives it more time."""
    for mode in race.modes:
        conclusion = conclusions_of(race).get(mode)
        if conclusion is None:
            nothing = f"Nothing was timed of both in {mode}"
            yield f"{nothing}; {more_time} may decide it." if more_time else f"{nothing}."
        else:
            yield speed_in_mode(conclusion, largest_difference(race, conclusion), more_time)


def conclusions_of(race: Analysis) -> dict[str, Conclusion]:
    """By mode, at which lengths the function is faster than the mechanism's form."""
    bases = {*race.baselines}
    return {
        conclusion.mode: conclusion
        for conclusion in race.about(Question.FASTER_FROM, against=bases)
        if bases.isdisjoint(conclusion.series)
    }


def speed_in_mode(conclusion: Conclusion, alike_within: float, more_time: str) -> str:
    """A conclusion on *faster from* as a sentence.

    alike_within: by how much their times differ at most, where that is known at all lengths raced
    more_time: the option that may decide what is not known
    """
    scope = conclusion.scope
    value = conclusion.value
    mode = conclusion.mode
    at = f"N = {numbers_text(scope.lengths)}"
    span = f" ({at})"
    only = "" if scope.is_whole else ", where both were timed"
    match conclusion.answer:
        case Answer.ALL:
            return f"Faster in {mode} at every length that was raced{span}."
        case Answer.NEVER:
            return f"Slower in {mode} at every length that was raced{span}."
        case Answer.FASTER_AT:
            return f"Faster in {mode} at {at}{only}; nothing is known of other lengths."
        case Answer.SLOWER_AT:
            return f"Slower in {mode} at {at}{only}; nothing is known of other lengths."
        case Answer.FROM:
            beyond = units.count(max(scope.lengths))
            return f"Faster in {mode} from N = {length_text(value)} to {beyond}, of {at}."
        case Answer.UP_TO:
            return f"Faster in {mode} up to N = {length_text(value)}, of {at}; then slower."
        case Answer.SLOWER_FROM:
            return f"Slower in {mode} from N = {units.count(round(value.high))} on, of {at}."
    if alike_within <= ALIKE:
        return f"As fast in {mode} within {ceil(100 * alike_within)} %{span}."
    way_out = f"; {more_time} may decide it" if more_time else ""
    return f"Not known whether it is faster in {mode}{span if scope.lengths else ''}{way_out}."


def length_text(value: Value) -> str:
    """`700 [512, 2,048]`, or `512 at the latest` where only that is known."""
    text, low, high = (
        "" if math.isnan(end) else units.count(round(end))
        for end in (value.point, value.low, value.high)
    )
    return units.interval(text, low, high) if low else f"{high} or before"


def largest_difference(race: Analysis, conclusion: Conclusion) -> float:
    """By how much both times differ at most at all lengths of a conclusion; inf if not known."""
    ratios = race.speedups
    scope = conclusion.scope
    if ratios is None or not scope.lengths:
        return inf
    of_both = (ratios["mode"] == conclusion.mode) & ratios["series"].isin(conclusion.series)
    rows = ratios[of_both & ratios["seq_len"].isin(scope.lengths)]
    ends = rows[["low", "high"]].to_numpy(float)
    if len(rows) < len(scope.lengths) or not (ends > 0).all():
        return inf
    return float(np.exp(np.abs(np.log(ends)).max()) - 1)


def crossovers(race: Analysis, more_time: str = "") -> dict[str, dict[str, Any]]:
    """By mode, what is concluded of the function with the mechanism's form, as data.

    The lengths are those at which both were timed. What would decide an open answer, or widen one,
    is `more_time`.
    """
    return {
        mode: {
            "mode": mode,
            "series": conclusion.series[0],
            "other": conclusion.against[0],
            "answer": str(conclusion.answer),
            "length": conclusion.value.point,
            "low": conclusion.value.low,
            "high": conclusion.value.high,
            "lengths": [*conclusion.scope.lengths],
            "decided_by": more_time if conclusion.decided_by else "",
        }
        for mode, conclusion in conclusions_of(race).items()
    }


def ratios(race: Analysis) -> Iterator[grid.Table]:
    """How many times faster it is than our form, for each mode; nothing of what is suspect."""
    if race.speedups is not None and not race.suspects:
        for mode in race.modes:
            yield cost_tables.speedup(race.cases, mode, race.baselines, race.speedups)


def data(verdict: "KernelVerdict") -> dict[str, Any]:
    """All of it as plain data."""
    function = verdict.question.function
    if verdict.error or verdict.kernel is None:
        return {"function": function, "error": verdict.error}
    race = verdict.race
    kernel = verdict.kernel
    in_race = verdict.suspect or verdict.failed
    about = {name: value for name, value in asdict(kernel).items() if name != "attempts"}
    return {
        "function": function,
        "mechanism": str(verdict.question.mechanism),
        "dtype": verdict.dtype,
        "device": verdict.device,
        "right": verdict.passes(Aspect.RIGHT) and verdict.complete and not in_race,
        "steady": verdict.passes(Aspect.STEADY) and verdict.complete,
        "complete": verdict.complete,
        "sound": verdict.sound,
        "suspect": verdict.suspect,
        "failed": verdict.failed,
        "decided_by": "" if verdict.complete else verdict.more_time,
        "changed": verdict.changed,
        **about,
        "raced": verdict.raced,
        "untrained": verdict.untrained,
        "causal": verdict.raced_as,
        "panel": [asdict(row) for row in verdict.rows],
        "text": [*sentences(verdict), *speed_sentences(verdict)],
        "speedups": race.speedups if race and not race.suspects else [],
        "crossovers": crossovers(race, verdict.more_time) if race else {},
    }
