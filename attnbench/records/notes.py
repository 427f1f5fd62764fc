"""All notes that a run may carry beside its numbers: what each tells, and what reports do with it.

Whatever writes or warns of a note names it here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Note(StrEnum):
    """The key of a note in `Run.notes`."""

    SUSPECT = "suspect"  # signs that the mechanism does not do its work, joined by `; `
    LAUNCHES = "launches"  # how many samples show a GPU's launches, which could not be hidden
    CHANGED = "changed"  # settings of torch that the mechanism changed
    ODD = "odd"  # what the mechanism did that few others do
    PROCESSES = "processes"  # how many processes it left running
    LATER = "later"  # what became of the case in a later race of its round
    UNEXAMINED = "unexamined"  # why odd behaviour was not looked for
    GARBAGE = "garbage"  # that iterations leave garbage in cycles
    DEPARTS = "departs"  # how a form of a package departs from the equations
    UNCOUNTED = "uncounted"  # memory that its peaks miss
    ENERGY = "energy"  # why energy was not measured
    ARITHMETIC = "arithmetic"  # on which units float32 is multiplied, where not on its own
    THROTTLE = "throttle"  # why the clock of a GPU was low
    CLOCK = "clock"  # how far below its maximum the clock of a GPU was
    NUMBER_TYPES = "number_types"  # in which number types operators gave results, joined by `, `
    ATTENTION_KERNEL = "attention_kernel"  # operators that computed attention, joined by `, `
    OPERATORS = "operators"  # why operators are not counted
    CAUSAL = "causal"  # that it sees no later token, though nobody asked for that
    EXAMINED = "examined"  # where odd behaviour was looked for
    PACKAGE = "package"  # the package that computes the form, with its version
    NVML = "nvml"  # why the driver does not tell the memory of single processes
    FIXTURES = "fixtures"  # that fixtures of a test were not taken down in time


@dataclass(frozen=True, kw_only=True)
class NoteUse:
    """What a report does with one kind of note, beside what its own warnings make of it.

    warning: the sentence of a report, with the series, the text of the note and the package of the
        run in the places {0}, {1} and {2}; empty where no report warns of the note by itself
    column: whether the cases of a report have it as a column, as they may be ranked by it
    """

    warning: str = ""
    column: bool = False


DEPENDS = "; times and results may depend on it"

NOTES: Mapping[Note, NoteUse] = MappingProxyType({
    Note.SUSPECT: NoteUse(warning="{0} {1}: it is shown, and not ranked"),
    Note.CHANGED: NoteUse(warning="{0} changed {1}" + DEPENDS),
    Note.ODD: NoteUse(warning="{0} {1}" + DEPENDS),
    Note.PROCESSES: NoteUse(warning="{0} {1}" + DEPENDS),
    Note.LATER: NoteUse(warning="{0} {1}" + DEPENDS),
    Note.UNEXAMINED: NoteUse(warning="{0} {1}"),
    Note.GARBAGE: NoteUse(warning="{0} {1}"),
    Note.DEPARTS: NoteUse(warning="{0} ({2}) departs from the equations: {1}"),
    Note.ENERGY: NoteUse(warning="energy was not measured: {1}"),
    Note.ATTENTION_KERNEL: NoteUse(column=True),
    Note.NUMBER_TYPES: NoteUse(column=True),
    Note.ARITHMETIC: NoteUse(column=True),
    Note.UNCOUNTED: NoteUse(column=True),
})  # fmt: skip


def column_notes() -> tuple[Note, ...]:
    """The notes that are columns of the cases of a report."""
    return tuple(note for note, row in NOTES.items() if row.column)


def left_running(count: int) -> dict[str, str]:
    """The note on processes that a mechanism left running, if there were any."""
    noun = "process" if count == 1 else "processes"
    text = f"started {count} {noun} that had to be ended"
    return {Note.PROCESSES: text} if count else {}
