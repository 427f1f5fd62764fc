"""From the bytes of a journal to a sweep, setting aside lines that cannot be read."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from attnbench.errors import DamagedJournal
from attnbench.records import CardFacts, Part, Planned, Run, Shard, Sweep
from attnbench.store import schema
from attnbench.store.schema import End, EndReason, Head, Start

TORN = "the last line is torn: the run in flight was lost"


def parse(data: bytes, origin: str) -> Sweep:
    """The sweep in a journal; its warnings list lines set aside. Raises what `contents` raises."""
    return contents(data, origin).sweep()


def contents(data: bytes, origin: str) -> "Contents":
    """What a journal holds.

    Raises `DamagedJournal` naming `origin` if the first line cannot be read, `OtherSchema` if any
    line has another schema.
    """
    found, unended = Contents(), data.count(b"\n") + 1
    for number, line in lines(data):
        try:
            found.take(number, line)
        except ValueError as error:
            if found.head is None:
                raise DamagedJournal(
                    f"the first line of {origin} cannot be read ({error}); restore the file from a"
                    " copy, or sweep into another folder with --out"
                ) from error
            found.torn = line if number == unended else b""
            found.warnings.append(TORN if found.torn else f"line {number}: {error}; set aside")
    if found.head is None:
        raise DamagedJournal(f"{origin} is empty: its sweep never began; repeat it")
    return found


def lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers from 1, without empty ones."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line:
            yield number, line


@dataclass
class Contents:
    """What has been read so far."""

    head: Head | None = None
    begun: str = ""
    sessions: list[Start] = field(default_factory=list)
    cards: dict[str, CardFacts] = field(default_factory=dict)
    cases: dict[str, Planned] = field(default_factory=dict)
    runs: list[tuple[int, Run]] = field(default_factory=list)
    # how the last session of each ended; None if it did not
    ended: dict[Shard | None, EndReason | None] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    torn: bytes = b""  # the last line, if it has no end and cannot be read

    def take(self, number: int, line: bytes) -> None:
        """Add a line. Raises `ValueError` if it cannot be read or does not belong in a sweep."""
        entry = schema.unseal(line)
        record = schema.from_entry(entry)
        if self.head is None and not isinstance(record, Head):
            raise ValueError("it does not begin a sweep")
        match record:
            case Head() as head:
                if self.head is not None:
                    raise ValueError("a second header")
                self.head, self.begun = head, entry.at
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
        assert self.head is not None, "a journal begins with it"
        runs: dict[tuple[str, Part, int], Run] = {}
        warnings = [*self.warnings]
        for number, run in self.runs:
            if run.case not in self.cases:
                warnings.append(f"line {number}: a run of an unknown case; set aside")
                continue
            key = self.cases[run.case].case.key, run.part, run.round
            if key in runs and not runs[key].elapsed_s:
                del runs[key]  # it had been left out, and ran only now
            runs[key] = replace(run, case=key[0])
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
            warnings=tuple(warnings),
            shards=self._shards(),
            over_budget=EndReason.BUDGET in self.ended.values(),
        )

    def _shards(self) -> tuple[Shard, ...]:
        return tuple(sorted(shard for shard in self.ended if shard is not None))

    def _finished(self) -> bool:
        """Whether the last session ended well; of shards all, or the only one in its journal."""
        well = {
            shard: end in (EndReason.FINISHED, EndReason.BUDGET)
            for shard, end in self.ended.items()
        }
        if None in well:
            return well[None]
        shards = self._shards()
        return all(well.values()) and len(shards) in {1, *(shard.of for shard in shards)}
