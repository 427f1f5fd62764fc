"""From the bytes of a journal to a sweep, setting aside lines that cannot be read."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from attnbench.errors import DamagedJournal
from attnbench.records import CardFacts, Part, Planned, Run, Shard, Sweep
from attnbench.store import schema
from attnbench.store.schema import End, EndReason, Entry, Head, Start
from attnbench.units import many

TORN = "the last line is torn: the run in flight was lost"
MOVED = (
    "between the numbers of lines: some are missing, repeated or out of order; of several"
    " about one run the last is used, and --resume measures again what is lost"
)


def parse(data: bytes, origin: str) -> Sweep:
    """The sweep in a journal; its warnings list lines set aside.

    Raises `DamagedJournal` naming `origin` if the first line cannot be read, `OtherSchema` if any
    line has another schema.
    """
    pieces = list(lines(data))
    head, order = _head(pieces, origin), _Order()
    contents = _Contents(head, begun=order.read(pieces[0][1]).at)
    for number, line in pieces[1:]:
        try:
            contents.take(number, order.read(line))
        except ValueError as error:
            torn = line is pieces[-1][1] and not data.endswith(b"\n")
            contents.warnings.append(TORN if torn else f"line {number}: {error}; set aside")
    if order.gaps:
        contents.warnings.append(f"{many(order.gaps, 'gap')} {MOVED}")
    return contents.sweep()


def next_line(data: bytes) -> int:
    """The number of the line that will be appended to a journal."""
    order = _Order()
    for _, line in lines(data):
        with suppress(ValueError):
            order.read(line)
    return order.last + order.unread + 1


def lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers from 1, without empty ones."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line:
            yield number, line


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
    """Whether the numbers of lines follow one another."""

    last: int = 0  # the number of the last line that could be read
    unread: int = 0  # lines since then
    gaps: int = 0  # between the numbers of lines, forwards or back

    def read(self, line: bytes) -> Entry:
        """The entry of the next line. Raises `ValueError` if it cannot be read."""
        self.unread += 1
        entry = schema.unseal(line)
        self.gaps += not self.last < entry.line <= self.last + self.unread
        self.last, self.unread = entry.line, 0
        return entry


@dataclass
class _Contents:
    """What has been read so far."""

    head: Head
    begun: str
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

    def sweep(self) -> Sweep:
        """What has been read, as a whole."""
        runs: dict[tuple[str, Part, int], Run] = {}
        for run in self._known_runs():
            key = run.case, run.part, run.round
            if key in runs and not runs[key].elapsed_s:
                del runs[key]  # it had been left out, and ran only now
            runs[key] = run
        plan = {planned.case.key: planned for planned in self.cases.values()}
        asked = self.sessions[-1] if self.sessions else self.head
        return Sweep(
            name=self.head.name,
            begun=self.begun,
            request=asked.request,
            sessions=tuple(session.environment for session in self.sessions),
            cards=tuple(self.cards.values()),
            plan=tuple(plan.values()),
            runs=tuple(runs.values()),
            finished=self._finished(),
            warnings=tuple(self.warnings),
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
