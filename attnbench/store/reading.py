"""From the bytes of a journal to a sweep, setting aside lines that cannot be read."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from attnbench.errors import DamagedJournal
from attnbench.records import CardFacts, Part, Planned, Run, Shard, Sweep
from attnbench.store import schema
from attnbench.store.schema import End, EndReason, Entry, Head, Start

TORN = "the last line is torn: the run in flight was lost"


def parse(data: bytes, origin: str) -> Sweep:
    """The sweep in a journal; its warnings list lines set aside.

    Raises `DamagedJournal` naming `origin` if the first line cannot be read, `NewerSchema` if a
    later version wrote any line.
    """
    pieces = list(lines(data))
    contents, order = _Contents(_head(pieces, origin)), _Order()
    order.read(*pieces[0])
    for number, line in pieces[1:]:
        try:
            contents.take(number, order.read(number, line))
        except ValueError as error:
            torn = line is pieces[-1][1] and not data.endswith(b"\n")
            contents.warnings.append(TORN if torn else f"line {number}: {error}; set aside")
    return contents.sweep(order.warnings())


def next_line(data: bytes) -> int:
    """The number of the line that will be appended to a journal."""
    order = _Order()
    for number, line in lines(data):
        with suppress(ValueError):
            order.read(number, line)
    return order.next_line


def lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers from 1; lines that lost the newline between them are separated."""
    for number, text in enumerate(data.split(b"\n"), start=1):
        for line in schema.START.split(text):
            if line:
                yield number, line


def readable(line: bytes) -> bool:
    """Whether the line is complete."""
    try:
        schema.unseal(line)
    except ValueError:
        return False
    return True


def _head(pieces: list[tuple[int, bytes]], origin: str) -> Head:
    if not pieces:
        raise DamagedJournal(f"{origin} is empty: its sweep never began; repeat it")
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
    """The line numbers read so far: which are missing, and which are out of order.

    A line without a number, or that cannot be read, is assumed to be in order.
    """

    next_line: int = 1
    highest: int = 0
    seen: set[int] = field(default_factory=set)
    unread: int = 0
    unread_between: int = 0  # those before the highest line
    out_of_order: list[int] = field(default_factory=list)

    def read(self, number: int, line: bytes) -> Entry:
        """The entry of a line, counted. Raises `ValueError` if it cannot be read."""
        expected = self.next_line
        self.next_line += 1
        try:
            entry = schema.unseal(line)
        except ValueError:
            self.unread += 1
            raise
        written = entry.line or expected
        if written <= self.highest:
            self.out_of_order.append(number)
            self.next_line = expected
        else:
            self.highest, self.unread_between = written, self.unread
            self.next_line = written + 1
        self.seen.add(written)
        return entry

    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the order; lines that could not be read are not also missing."""
        warnings = []
        missing = self.highest - len(self.seen) - self.unread_between
        if missing > 0:
            warnings.append(
                f"lines missing from the journal: {missing} of {self.highest};"
                " --resume measures again what they held"
            )
        if self.out_of_order:
            warnings.append(
                f"lines of the journal repeated or out of order: {len(self.out_of_order)}, the"
                f" first is line {self.out_of_order[0]}; of several about one run the last is used"
            )
        return tuple(warnings)


@dataclass
class _Contents:
    """What has been read so far."""

    head: Head
    sessions: list[Start] = field(default_factory=list)
    cards: dict[str, CardFacts] = field(default_factory=dict)
    cases: dict[str, Planned] = field(default_factory=dict)
    runs: list[tuple[int, Run]] = field(default_factory=list)
    # how the last session of each ended; None if it did not
    ended: dict[Shard | None, EndReason | None] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def take(self, number: int, entry: Entry) -> None:
        """Add an entry. Raises `ValueError` if it does not belong in a sweep."""
        match schema.from_entry(entry):
            case Head():
                raise ValueError("a second header")
            case Start() as session:
                self.sessions.append(session)
                self.ended[session.shard] = None
            case CardFacts() as card:
                self.cards[card.mechanism] = card
            case Planned() as planned:
                if not isinstance(entry.data.get("id"), str):
                    raise ValueError("a case without an id")
                self.cases[entry.data["id"]] = planned
            case Run() as run:
                self.runs.append((number, run))
            case End(outcome=outcome, shard=shard):
                self.ended[shard] = outcome

    def sweep(self, order: tuple[str, ...]) -> Sweep:
        runs: dict[tuple[str, Part, int], Run] = {}
        for run in self._known_runs():
            key = run.case, run.part, run.round
            if key in runs and not runs[key].elapsed_s:
                del runs[key]  # what had been left out ran only now
            runs[key] = run
        plan = {planned.case.key: planned for planned in self.cases.values()}
        asked = self.sessions[-1] if self.sessions else self.head
        return Sweep(
            name=self.head.name,
            request=asked.request,
            sessions=tuple(session.environment for session in self.sessions),
            cards=tuple(self.cards.values()),
            plan=tuple(plan.values()),
            runs=tuple(runs.values()),
            finished=self._finished(),
            warnings=(*self.warnings, *order),
            shards=self._shards(),
            over_budget=EndReason.BUDGET in self.ended.values(),
            divisions=frozenset(s.division for s in self.sessions if s.division),
        )

    def _shards(self) -> tuple[Shard, ...]:
        return tuple(sorted(shard for shard in self.ended if shard is not None))

    def _finished(self) -> bool:
        """Whether the last session ended well; of shards all, or the only one in its journal."""
        badly = (None, EndReason.INTERRUPTED)
        well = {shard: end not in badly for shard, end in self.ended.items()}
        if None in well:
            return well[None]
        shards = self._shards()
        whole = len(shards) == 1 or (bool(shards) and len(shards) == shards[0].of)
        return whole and all(well.values())

    def _known_runs(self) -> Iterator[Run]:
        """The runs, with the keys of their cases in place of ids."""
        for number, run in self.runs:
            if run.case in self.cases:
                yield replace(run, case=self.cases[run.case].case.key)
            else:
                self.warnings.append(f"line {number}: a run of an unknown case; set aside")
