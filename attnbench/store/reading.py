"""Bytes of a journal to a sweep, setting aside what cannot be read."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from attnbench.errors import DamagedJournal
from attnbench.records import CardFacts, Planned, Run, Sweep
from attnbench.store import schema
from attnbench.store.schema import End, Ending, Entry, Head, Session

TORN = "the last line is torn: the run in flight was lost"


def parse(data: bytes, origin: str) -> Sweep:
    """The sweep that a journal holds; what was set aside stands in its warnings.

    Raises `DamagedJournal` naming `origin` if the first line cannot be read, `NewerSchema` if a
    later version wrote any line.
    """
    pieces = list(lines(data))
    found, order = _Found(_head(pieces, origin)), _Order()
    order.read(*pieces[0])
    for number, line in pieces[1:]:
        try:
            found.take(number, order.read(number, line))
        except ValueError as error:
            torn = line is pieces[-1][1] and not data.endswith(b"\n")
            found.warnings.append(TORN if torn else f"line {number}: {error}; set aside")
    return found.sweep(order.warnings())


def next_line(data: bytes) -> int:
    """The number of the line that will be appended to a journal."""
    order = _Order()
    for number, line in lines(data):
        with suppress(ValueError):
            order.read(number, line)
    return order.next_line


def lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers from 1; lines that lost the newline between them are parted."""
    for number, text in enumerate(data.split(b"\n"), start=1):
        for line in schema.START.split(text):
            if line:
                yield number, line


def readable(line: bytes) -> bool:
    """Whether the line is whole."""
    try:
        schema.unseal(line)
    except ValueError:
        return False
    return True


def _head(pieces: list[tuple[int, bytes]], origin: str) -> Head:
    if not pieces:
        raise DamagedJournal(f"{origin} is empty: its sweep never began; sweep again")
    try:
        head = schema.from_entry(schema.unseal(pieces[0][1]))
    except ValueError as error:
        head, reason = None, str(error)
    else:
        reason = "it does not begin a sweep"
    if not isinstance(head, Head):
        raise DamagedJournal(
            f"the first line of {origin} cannot be read ({reason}); "
            "restore the file from a copy, or sweep into another folder with --out"
        )
    return head


@dataclass
class _Order:
    """The numbers of the lines read so far: which are missing, and which are out of place.

    A line without a number, or that cannot be read, is taken to stand where it was written.
    """

    next_line: int = 1
    highest: int = 0
    seen: set[int] = field(default_factory=set)
    unread: int = 0
    unread_between: int = 0  # those before the highest line
    out_of_place: list[int] = field(default_factory=list)

    def read(self, number: int, line: bytes) -> Entry:
        """The entry of a line, counted. Raises `ValueError` if it cannot be read."""
        place = self.next_line
        self.next_line += 1
        try:
            entry = schema.unseal(line)
        except ValueError:
            self.unread += 1
            raise
        written = entry.line or place
        if written <= self.highest:
            self.out_of_place.append(number)
            self.next_line = place
        else:
            self.highest, self.unread_between = written, self.unread
            self.next_line = written + 1
        self.seen.add(written)
        return entry

    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the order of the lines; an unread line is not missing too."""
        found = []
        missing = self.highest - len(self.seen) - self.unread_between
        if missing > 0:
            found.append(
                f"lines missing from the journal: {missing} of {self.highest};"
                " --resume measures again what they held"
            )
        if self.out_of_place:
            found.append(
                f"lines of the journal repeated or out of order: {len(self.out_of_place)}, the"
                f" first is line {self.out_of_place[0]}; of several about one run the last is used"
            )
        return tuple(found)


@dataclass
class _Found:
    """What has been read so far."""

    head: Head
    sessions: list[Session] = field(default_factory=list)
    cards: dict[str, CardFacts] = field(default_factory=dict)
    cases: dict[str, Planned] = field(default_factory=dict)
    runs: list[tuple[int, Run]] = field(default_factory=list)
    finished: bool = False
    warnings: list[str] = field(default_factory=list)

    def take(self, number: int, entry: Entry) -> None:
        """Raises `ValueError` if the entry is not one of a sweep."""
        match schema.from_entry(entry):
            case Head():
                raise ValueError("a second beginning")
            case Session() as session:
                self.sessions.append(session)
                self.finished = False
            case CardFacts() as card:
                self.cards[card.mechanism] = card
            case Planned() as planned:
                if not isinstance(entry.data.get("id"), str):
                    raise ValueError("a case without an id")
                self.cases[entry.data["id"]] = planned
            case Run() as run:
                self.runs.append((number, run))
            case End(outcome=outcome):
                self.finished = outcome is not Ending.INTERRUPTED

    def sweep(self, order: tuple[str, ...]) -> Sweep:
        runs = {(run.case, run.part, run.round): run for run in self._known_runs()}
        plan = {planned.case.key: planned for planned in self.cases.values()}
        asked = self.sessions[-1] if self.sessions else self.head
        return Sweep(
            name=self.head.name,
            request=asked.request,
            sessions=tuple(session.environment for session in self.sessions),
            cards=tuple(self.cards.values()),
            plan=tuple(plan.values()),
            runs=tuple(runs.values()),
            finished=self.finished,
            warnings=(*self.warnings, *order),
        )

    def _known_runs(self) -> Iterator[Run]:
        """The runs with the keys of their cases in place of the ids."""
        for number, run in self.runs:
            if run.case in self.cases:
                yield replace(run, case=self.cases[run.case].case.key)
            else:
                self.warnings.append(f"line {number}: a run of a case not described; set aside")
