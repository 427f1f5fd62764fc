"""All notes that a run may carry beside its numbers: what each tells, and how much it weighs.

One table. Whatever writes or warns of a note names it here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Note(StrEnum):
    """The key of a note in `Run.notes`."""

    SUSPECT = "suspect"
    LAUNCHES = "launches"
    CHANGED = "changed"
    ODD = "odd"
    PROCESSES = "processes"
    LATER = "later"
    UNEXAMINED = "unexamined"
    GARBAGE = "garbage"
    DEPARTS = "departs"
    UNCOUNTED = "uncounted"
    ENERGY = "energy"
    ARITHMETIC = "arithmetic"
    THROTTLE = "throttle"
    CLOCK = "clock"
    NUMBER_TYPES = "number_types"
    ATTENTION_KERNEL = "attention_kernel"
    OPERATORS = "operators"
    CAUSAL = "causal"
    EXAMINED = "examined"
    PACKAGE = "package"
    NVML = "nvml"
    FIXTURES = "fixtures"


class Severity(StrEnum):
    """What a note does to the numbers of its run."""

    SERIES_UNRANKED = "no case of the series is ranked"
    TIME_UNRANKED = "the time of the case is not ranked"
    DOUBT = "the numbers may depend on it"
    LIMIT = "some number was not measured, or not in full"
    FACT = "it tells how the numbers came about"


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What one note means.

    meaning: of its text
    severity: what it does to the numbers
    warning: the sentence of a report, with the series, the text of the note and the package of the
        run in the places {0}, {1} and {2}; empty where no report warns of the note by itself
    column: whether the cases of a report have it as a column, as they may be ranked by it
    """

    meaning: str
    severity: Severity
    warning: str = ""
    column: bool = False


DEPENDS = "; times and results may depend on it"

NOTES: Mapping[Note, Meaning] = MappingProxyType({
    Note.SUSPECT: Meaning(
        meaning="signs that the mechanism does not do its work, joined by `; `",
        severity=Severity.SERIES_UNRANKED,
        warning="{0} {1}: it is shown, and not ranked",
    ),
    Note.LAUNCHES: Meaning(
        meaning="how many samples show a GPU's launches, which could not be hidden",
        severity=Severity.TIME_UNRANKED,
    ),
    Note.CHANGED: Meaning(
        meaning="settings of torch that the mechanism changed",
        severity=Severity.DOUBT,
        warning="{0} changed {1}" + DEPENDS,
    ),
    Note.ODD: Meaning(
        meaning="what the mechanism did that few others do",
        severity=Severity.DOUBT,
        warning="{0} {1}" + DEPENDS,
    ),
    Note.PROCESSES: Meaning(
        meaning="how many processes it left running",
        severity=Severity.DOUBT,
        warning="{0} {1}" + DEPENDS,
    ),
    Note.LATER: Meaning(
        meaning="what became of the case in a later race of its round",
        severity=Severity.DOUBT,
        warning="{0} {1}" + DEPENDS,
    ),
    Note.UNEXAMINED: Meaning(
        meaning="why odd behaviour was not looked for",
        severity=Severity.LIMIT,
        warning="{0} {1}",
    ),
    Note.GARBAGE: Meaning(
        meaning="that iterations leave garbage in cycles",
        severity=Severity.DOUBT,
        warning="{0} {1}",
    ),
    Note.DEPARTS: Meaning(
        meaning="how a form of a package departs from the equations",
        severity=Severity.DOUBT,
        warning="{0} ({2}) departs from the equations: {1}",
    ),
    Note.ENERGY: Meaning(
        meaning="why energy was not measured",
        severity=Severity.LIMIT,
        warning="energy was not measured: {1}",
    ),
    Note.ATTENTION_KERNEL: Meaning(
        meaning="operators of torch that computed attention, joined by `, `",
        severity=Severity.FACT,
        column=True,
    ),
    Note.NUMBER_TYPES: Meaning(
        meaning="in which number types operators gave results, joined by `, `",
        severity=Severity.FACT,
        column=True,
    ),
    Note.ARITHMETIC: Meaning(
        meaning="on which units of a GPU float32 is multiplied, where not on those of float32",
        severity=Severity.DOUBT,
        column=True,
    ),
    Note.UNCOUNTED: Meaning(
        meaning="memory that its peaks miss",
        severity=Severity.LIMIT,
        column=True,
    ),
    Note.THROTTLE: Meaning(
        meaning="why the clock of a GPU was low",
        severity=Severity.DOUBT,
    ),
    Note.CLOCK: Meaning(
        meaning="how far below its maximum the clock of a GPU was",
        severity=Severity.DOUBT,
    ),
    Note.OPERATORS: Meaning(
        meaning="why operators are not counted",
        severity=Severity.LIMIT,
    ),
    Note.CAUSAL: Meaning(
        meaning="that it sees no later token, though nobody asked for that",
        severity=Severity.FACT,
    ),
    Note.EXAMINED: Meaning(
        meaning="where odd behaviour was looked for",
        severity=Severity.FACT,
    ),
    Note.PACKAGE: Meaning(
        meaning="the package that computes the form, with its version",
        severity=Severity.FACT,
    ),
    Note.NVML: Meaning(
        meaning="why the driver does not tell the memory of single processes",
        severity=Severity.LIMIT,
    ),
    Note.FIXTURES: Meaning(
        meaning="that fixtures of a test were not taken down in time",
        severity=Severity.FACT,
    ),
})  # fmt: skip


def column_notes() -> tuple[Note, ...]:
    """The notes that are columns of the cases of a report."""
    return tuple(note for note, row in NOTES.items() if row.column)


def left_running(count: int) -> dict[str, str]:
    """The note on processes that a mechanism left running, if there were any."""
    noun = "process" if count == 1 else "processes"
    text = f"started {count} {noun} that had to be ended"
    return {Note.PROCESSES: text} if count else {}
