"""A sweep: the cases that are planned, and what was measured of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from attnbench.records.bounds import Count, Work
from attnbench.records.card import CardFacts
from attnbench.records.case import Case, Level
from attnbench.records.machine import Environment
from attnbench.records.modes import Mode
from attnbench.records.request import Request
from attnbench.records.run import Origin, Run, Shard


class Block(NamedTuple):
    """What cases that are raced against one another have in common."""

    mode: Mode
    seq_len: int
    width: int
    heads: int
    dtype: str
    batch: int
    step: int = 1


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A case with what is known before it runs.

    FLOPs are exact: those of the forward pass on the whole workload, or of one step in decode,
    whose prefill has its own: none if the state is filled. Bytes are counted from the sizes of
    tensors. If the mechanism has not `declared` its costs, they only put lengths in order; what
    they mean in seconds `analysis.costs` says. `refusal` says why a case cannot run at all, or is
    empty. A case that `compiles` is compiled by torch in every process; one that `tunes`
    first autotunes its kernels.
    """

    case: Case
    parameters: Count
    projection_flops: Work
    core_flops: Work
    shell_flops: Work  # everything of level `model` that is not the mechanism
    predicted_bytes: Work  # allocated at the peak
    refusal: str = ""
    compiles: bool = False
    tunes: bool = False
    prefill_flops: Work = 0  # in decode, of the pass over the prompt
    moved_bytes: Count = 0  # by the forward pass
    filled: bool = False  # in decode: the state is filled with random numbers, without a prompt
    layers: tuple[str, ...] = ()  # of a stack, in order: each named as its own series
    own: bool = False  # of this package, whose tests look for odd behaviour: a sweep need not
    declared: bool = True  # False: what it costs is unknown until it is measured

    @cached_property
    def block(self) -> Block:
        """The block of the case."""
        w = self.case.workload
        return Block(w.mode, w.seq_len, w.width, w.heads, w.dtype, w.batch, w.step)

    @property
    def depth(self) -> int:
        """The layers of a stack, over which its costs are compared with those of single layers.

        At level `model` that is 1: each classifier has equally many.
        """
        return 1 if self.case.workload.level is Level.MODEL else max(1, len(self.layers))

    @property
    def flops(self) -> int:
        """Forward FLOPs of one iteration."""
        return self.projection_flops + self.core_flops + self.shell_flops


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A plan of cases with their runs, as read from a journal."""

    name: str
    request: Request
    sessions: tuple[Environment, ...]
    cards: tuple[CardFacts, ...]
    plan: tuple[Planned, ...]
    runs: tuple[Run, ...]
    finished: bool
    warnings: tuple[str, ...] = ()  # lines set aside while reading
    shards: tuple[Shard, ...] = ()  # that the journal holds, in order
    begun: str = ""  # UTC, ISO 8601
    over_budget: bool = False  # the budget ended it, or one of its shards
    # what was asked of the session that measured the runs of an origin
    asked: Mapping[Origin, Request] = field(default_factory=dict)

    @property
    def shard(self) -> Shard | None:
        """The only shard that the journal holds; None of a whole sweep, or of several shards."""
        return self.shards[0] if len(self.shards) == 1 else None

    @property
    def missing(self) -> Iterator[Shard]:
        """The shards that the journal lacks, unless it was resumed as a whole sweep."""
        if self.shards and all(run.origin.shard for run in self.runs):
            of = self.shards[0].of
            yield from (s for i in range(1, of + 1) if (s := Shard(i, of)) not in self.shards)
