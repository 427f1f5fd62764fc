"""The verdict on a user's function: sentences, the panel of its errors, and how fast it is."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from math import ceil, inf, isfinite
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from attnbench import units
from attnbench.analysis.report import Analysis
from attnbench.analysis.scaling import CrossoverKind
from attnbench.records import Aspect, Attempt, Finding, Kernel, Row
from attnbench.render.cost_tables import speedup
from attnbench.render.grid import EMPTY, Cell, Column, Table, clean, number, table, words

PANEL = (
    "Errors are against float64: of the output relative to the largest output, of a row to the"
    " largest number of the row, of a gradient to its own largest number. Ours: the mechanism's"
    " usual form on the same inputs. Right: within the tolerance of the number type, or ten times"
    " our error; a verdict names what exceeds that. Under stress fewer digits, down to half of"
    " them, are steady."
)
AXES = MappingProxyType({"bhnd": "[B, H, N, d]", "bnhd": "[B, N, H, d]"})
ALIKE = 0.1  # what differs by no more at any length is as fast
CLEARLY = 1e-2  # an error of a way to call it that is not its own
SILENT_S = 5.0  # before the first line of progress
EVERY_S = 10.0  # between such lines


class Verdict(Protocol):
    """What is read of `api.judging.Verdict`."""

    @property
    def question(self) -> Any: ...
    @property
    def error(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def kernel(self) -> Kernel | None: ...
    @property
    def rows(self) -> tuple[Row, ...]: ...
    @property
    def changed(self) -> str: ...
    @property
    def suspect(self) -> str: ...
    @property
    def race(self) -> Analysis | None: ...
    @property
    def unraced(self) -> str: ...
    @property
    def raced_as(self) -> bool: ...
    @property
    def raced(self) -> tuple[int, ...]: ...
    @property
    def complete(self) -> bool: ...
    @property
    def sound(self) -> bool: ...
    def passes(self, aspect: str) -> bool: ...


class Line(Protocol):
    """What shows progress: `terminal.ProgressLine`."""

    def show(self, running: str, stage: str, counts: str, left_s: float) -> None: ...


class Waiting:
    """Says what is being tried, from the sixth second on."""

    def __init__(self, line: Line, clock: Callable[[], float] = time.monotonic) -> None:
        self.line, self.clock = line, clock
        self.begun = clock()
        self.told, self.count = self.begun + SILENT_S - EVERY_S, 0

    def announce(self, text: str) -> None:
        """Show what is being tried, unless something was shown a moment ago."""
        self.count += 1
        now = self.clock()
        if now - self.begun >= SILENT_S and now - self.told >= EVERY_S:
            self.told = now
            self.line.show("", text, units.many(self.count, "step"), math.inf)


def lines(verdict: Verdict) -> Iterator[str]:
    """One line for a function among several."""
    if verdict.error:
        yield f"{clean(verdict.question.function)}: {clean(verdict.error)}"
    else:
        fast = " ".join(speed(verdict))
        yield f"{headline(verdict)} {fast}"


def sentences(verdict: Verdict) -> Iterator[str]:
    """The verdict, what was tried, what was not, and how the function was called."""
    yield headline(verdict)
    yield tried(verdict)
    yield from untried(verdict)
    yield called(verdict)
    yield from notes(verdict)


def headline(verdict: Verdict) -> str:
    """`f as transformer (float32, cpu): right (N = 1 to 8,192); steady (N = 512 to 8,192).`"""
    said = "; ".join(said_of(aspect, verdict) for aspect in Aspect)
    doubts = ""
    if verdict.suspect:
        doubts = f" SUSPECT: in the race it {verdict.suspect};"
    if verdict.changed:
        doubts += f" it CHANGES torch's {verdict.changed};"
    return f"{claim(verdict)} ({verdict.dtype}, {verdict.device}):{doubts} {said}."


def claim(verdict: Verdict) -> str:
    """`f as kimi_delta`."""
    question = verdict.question
    return f"{clean(question.own.form)} as {question.mechanism}"


def said_of(aspect: Aspect, verdict: Verdict) -> str:
    """`right (N = 1 to 8,192)`, or where it is not."""
    rows = [row for row in verdict.rows if row.attempt.aspect is aspect]
    bad = [row for row in rows if not row.passes]
    if bad:
        others = f"; {len(bad) - 1} more of {len(rows)} attempts" if len(bad) > 1 else ""
        return f"NOT {aspect} ({where(bad[0])}{others})"
    made = [row.attempt for row in rows if row.tried]
    if not made:
        return f"not known whether {aspect}"
    as_far = "" if verdict.complete else ", as far as it was tried"
    ranges = {causal: span(a.tokens for a in made if a.causal == causal) for causal in modes(made)}
    if len(set(ranges.values())) == 1:
        text = f"N = {next(iter(ranges.values()))}"
    else:
        text = "; ".join(f"{mode_text(causal)} N = {known}" for causal, known in ranges.items())
    return f"{aspect} ({text}{as_far})"


def modes(attempts: Iterable[Attempt]) -> tuple[bool, ...]:
    """The values of `causal`, in the order in which they were tried."""
    return tuple(dict.fromkeys(attempt.causal for attempt in attempts))


def mode_text(causal: bool) -> str:
    """`causal` or `not causal`."""
    return "causal" if causal else "not causal"


def span(lengths: Iterable[int]) -> str:
    """`1 to 8,192`."""
    known = sorted(lengths)
    return units.between(known[0], known[-1])


def where(row: Row) -> str:
    """`masked, causal, at N = 100: wrong: dk`, with the sizes that are unusual."""
    attempt = row.attempt
    parts = [attempt.inputs, *(["causal"] if attempt.causal else [])]
    at = f"at N = {units.count(attempt.tokens)}, d = {row.head_width or '?'}"
    reason = f": {clean(row.reason)}" if row.reason else ""
    return f"{', '.join(parts)}, {at}: {row.finding}{reason}"


def tried(verdict: Verdict) -> str:
    """The sizes and modes that were compared; those of the race are among them."""
    rows = [row for row in verdict.rows if row.tried]
    attempts = [row.attempt for row in rows]
    lengths = listed(attempt.tokens for attempt in attempts)
    ways = " and ".join(map(mode_text, modes(attempts)))
    masked = ", masked" if any(attempt.masked for attempt in attempts) else ""
    gradients = [a.tokens for a in attempts if a.gradients]
    trains = any(name.startswith("d") for row in rows for name in row.errors)
    if not trains:
        backward = "without gradients, as it has no backward pass"
    else:
        backward = f"gradients to N = {units.count(max(gradients, default=0))}"
    calls = max((row.calls for row in rows), default=1)
    again = f"; the same call {units.count(calls)} times" if calls > 1 else ""
    widths = listed(row.head_width for row in rows if row.head_width)
    return (
        f"Tried at N = {lengths}; heads of width {widths};"
        f" {listed(a.heads for a in attempts)} heads; {listed(a.batch for a in attempts)}"
        f" sequences; {ways}{masked}; {backward}{again}. Nothing is known beyond."
    )


def listed(numbers: Iterable[int]) -> str:
    """`1, 17 and 8,192`."""
    texts = [units.count(number) for number in sorted(set(numbers))]
    return " and ".join((", ".join(texts[:-1]), texts[-1])) if len(texts) > 1 else "".join(texts)


def untried(verdict: Verdict) -> Iterator[str]:
    """What was to be tried, and was not, with the reasons."""
    for finding, said in ((Finding.UNTRIED, "Not tried"), (Finding.REFUSED, "It refuses")):
        rows = [row for row in verdict.rows if row.finding is finding]
        by_reason: dict[str, list[str]] = {}
        for row in rows:
            place = f"{row.attempt.inputs} at N = {units.count(row.attempt.tokens)}"
            by_reason.setdefault(row.reason, []).append(place)
        for reason, places in by_reason.items():
            yield f"{said}: {units.few(dict.fromkeys(places), 4)} ({clean(reason)})."
    kernel = verdict.kernel
    if kernel and kernel.refused:
        widths = ", ".join(kernel.refused)
        reason = clean(next(iter(kernel.refused.values())))
        yield (
            f"Judged with heads of width {kernel.head_width}, as it refuses those of {widths}"
            f" ({reason})."
        )


def called(verdict: Verdict) -> str:
    """How the function was called, and how it errs if it is called otherwise."""
    kernel = verdict.kernel
    if kernel is None:
        return ""
    (_, least), *others = kernel.ways.items()
    text = f"Called with {AXES[str(kernel.options['axes'])]}"
    if kernel.options.get("scales"):
        text += ", q not scaled, as it scales q by d^-0.5 itself"
    if kernel.mask:
        text += f", a mask as {kernel.mask}"
    if kernel.options.get("lower_bound") is not None:
        text += f", logs of decays of at least {kernel.options['lower_bound']}"
    if len(kernel.modes) == 1 and "causal" in kernel.untaken:
        text += f", {'causal' if kernel.modes[0] else 'not causal'}"
    worse = [f"as {way} it errs by {error_cell(error).text}" for way, error in others
             if error > max(least, CLEARLY)]  # fmt: skip
    text += f" ({'; '.join(worse)})" if worse else ""
    if kernel.untaken:
        text += f"; without {', '.join(kernel.untaken)}, which it does not take"
    return f"{text}."


def notes(verdict: Verdict) -> Iterator[str]:
    """What is to be known besides: other number types, and what is not exact in float64."""
    types = {f"in {row.attempt.dtype} it {row.note}" for row in verdict.rows if row.note}
    if types:
        yield f"{units.capitalised('; '.join(sorted(types)))}."
    narrow = [row.attempt.tokens for row in verdict.rows
              if row.reference not in ("", "float64")]  # fmt: skip
    if narrow:
        yield (
            f"At N = {listed(narrow)} memory did not allow float64: compared with our form in"
            f" {verdict.dtype}."
        )


def panel(verdict: Verdict) -> Table:
    """A row for each of the inputs: the errors of the function and of our form, and the verdict."""
    return table(
        verdict.rows,
        [
            Column("Inputs", lambda row: words(inputs_text(row))),
            Column("N", lambda row: number(row.attempt.tokens, units.count)),
            Column("B", lambda row: number(row.attempt.batch, units.count)),
            Column("H", lambda row: number(row.attempt.heads, units.count)),
            Column("d", lambda row: Cell(str(row.head_width or "–"))),
            Column("Worst", lambda row: words(row.worst)),
            Column("Error", lambda row: error_cell(row.errors.get(row.worst))),
            Column("Ours", lambda row: error_cell(row.ours.get(row.worst))),
            Column("Verdict", lambda row: words(finding_text(row))),
        ],
        name="panel",
        title=f"Errors of {claim(verdict)}",
        note=PANEL,
    )


def inputs_text(row: Row) -> str:
    """`as raced, causal`."""
    attempt = row.attempt
    inputs = "as raced" if attempt.raced else attempt.inputs
    return f"{inputs}, causal" if attempt.causal else inputs


def finding_text(row: Row) -> str:
    """`wrong: dk, dv`."""
    return f"{row.finding}: {row.reason}" if row.reason else str(row.finding)


def error_cell(value: float | None) -> Cell:
    """`8.6e-08`, or that it is not finite."""
    if value is None:
        return EMPTY
    return Cell(f"{value:.1e}", value) if isfinite(value) else Cell("not finite")


def speed(verdict: Verdict) -> Iterator[str]:
    """From which length the function is faster, of those that were raced."""
    race = verdict.race
    if race is None or race.speedups is None:
        yield f"Not raced: {verdict.unraced or 'nothing was timed'}."
        return
    yield from compared_speed(race, verdict.raced)
    kernel = verdict.kernel
    if kernel and len(kernel.modes) > 1:
        other = "--no-causal" if verdict.raced_as else "--causal"
        yield f"Raced {mode_text(verdict.raced_as)}; {other} races the other."


def compared_speed(race: Analysis, lengths: Sequence[int] = ()) -> Iterator[str]:
    """A sentence for each mode of a race at these lengths."""
    crossings, ratios = crossovers(race), race.speedups
    assert ratios is not None, "there are two series"
    for mode in race.modes:
        row = crossings.get(mode, {"answer": ""})
        ends = ratios.loc[ratios["mode"] == mode, ["low", "high"]].to_numpy(float)
        known = ends[np.isfinite(ends).all(1)] if ends.size else ends
        apart = np.exp(np.abs(np.log(known)).max()) - 1 if known.size else inf
        match row["answer"]:
            case CrossoverKind.FROM:
                places = (units.count(round(row[key])) for key in ("length", "low", "high"))
                yield "Faster in {} from N = {} [{}, {}].".format(mode, *places)
            case CrossoverKind.ALWAYS:
                yield f"Faster in {mode} at every length{among(lengths)}."
            case CrossoverKind.NEVER:
                yield f"Not faster in {mode} at the longest length{among(lengths)}."
            case _ if apart <= ALIKE:
                yield f"As fast in {mode} within {ceil(100 * apart)} %{among(lengths)}."
            case _:
                yield f"Whether it is faster in {mode}, and from where, is unsure; raise --budget."


def among(lengths: Sequence[int]) -> str:
    """` that was raced (N = 512 and 2,048)`."""
    return f" that was raced (N = {listed(lengths)})" if lengths else ""


def crossovers(race: Analysis) -> dict[str, Any]:
    """By mode, `scaling.crossovers` of the function with the mechanism's form."""
    own = race.crossovers[race.crossovers["other"].isin(race.baselines)]
    return {str(mode): row for mode, row in own.set_index("mode").to_dict("index").items()}


def ratios(race: Analysis) -> Iterator[Table]:
    """How many times faster it is than our form, for each mode."""
    if race.speedups is not None:
        for mode in race.modes:
            yield speedup(race.cases, mode, race.baselines, race.speedups)


def data(verdict: Verdict) -> dict[str, Any]:
    """All of it as plain data."""
    function = verdict.question.function
    if verdict.error or verdict.kernel is None:
        return {"function": function, "error": verdict.error}
    race, kernel = verdict.race, verdict.kernel
    about = {name: value for name, value in asdict(kernel).items() if name != "attempts"}
    return {
        "function": function,
        "mechanism": str(verdict.question.mechanism),
        "dtype": verdict.dtype,
        "device": verdict.device,
        "right": verdict.passes(Aspect.RIGHT) and verdict.complete,
        "steady": verdict.passes(Aspect.STEADY) and verdict.complete,
        "complete": verdict.complete,
        "sound": verdict.sound,
        "suspect": verdict.suspect,
        "changed": verdict.changed,
        **about,
        "raced": verdict.raced,
        "causal": verdict.raced_as,
        "panel": [asdict(row) for row in verdict.rows],
        "text": [*sentences(verdict), *speed(verdict)],
        "speedups": race.speedups if race else [],
        "crossovers": crossovers(race) if race else {},
    }
