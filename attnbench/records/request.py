"""What is requested of a sweep."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from attnbench.modes import Mode
from attnbench.records.bounds import Count, Dtype, Many, Seconds, Share, Size
from attnbench.records.case import Level
from attnbench.records.run import Clock


class EngineKind(StrEnum):
    """The engines that run the shards of a sweep on several machines."""

    SLURM = "slurm"
    RAY = "ray"


class FigureSize(StrEnum):
    """Where a figure is meant to stand."""

    COLUMN = "column"
    TEXT = "text"
    SLIDE = "slide"


def setting(default: Any, **how: Any) -> Any:
    """A field of `Settings`, with metadata on its uses elsewhere.

    `worker`: its value is sent to measuring processes. `compared`: times of two sweeps that differ
    in it are not compared. `said`: how a report's conditions describe it when it is on.
    """
    return field(default=default, metadata=how)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a sweep measures; the same for all cases."""

    seed: Count = 0
    threads: Size = 1
    sample_s: Seconds = 0.8  # timed work of one run, over all laps
    interval_s: Seconds = 0.01  # a shorter iteration is repeated within one sample
    # what counts where there is no device time
    clock: Clock = setting(Clock.WALL, worker=True, compared=True)
    # most seconds of the warm-up; one full iteration always runs
    warmup_s: Seconds = setting(0.25, worker=True)
    faulting_s: Seconds = setting(0.0, worker=True)  # most seconds of it while pages fault
    # on CUDA: flush the second-level cache before each iteration
    cold: bool = setting(False, worker=True, compared=True, said="cold cache")
    # on CUDA: capture each iteration, and replay it
    cuda_graphs: bool = setting(False, worker=True, compared=True, said="CUDA graphs")
    # measure the energy of an iteration in a window of its own
    energy: bool = setting(False, worker=True, said="energy")
    memory_limit_bytes: Count | None = None  # of one worker's address space

    def fields_with(self, key: str) -> Iterator[tuple[str, Any, Any]]:
        """Name, value and metadata of each field to which `setting` gave metadata of this key."""
        for each in fields(self):
            if each.metadata.get(key):
                yield each.name, getattr(self, each.name), each.metadata[key]

    @property
    def worker_settings(self) -> dict[str, Any]:
        """The settings sent to measuring processes."""
        return {name: value for name, value, _ in self.fields_with("worker")}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """One combination of those that a sweep may cross."""

    width: Size
    heads: Size
    dtype: Dtype
    batch: Many | None = None  # None: c // N


LEAST_ROUNDS = 4  # before precision may end a block; `statistics.ratios` says why


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was requested of a sweep, including everything that the program chose by itself.

    Of several `variants`, width, heads, dtype and batch are those of the first.
    """

    models: tuple[str, ...]
    lengths: tuple[Size, ...]
    tokens: Many  # of a batch, without effect if the batch is fixed
    preset: str
    level: Level
    modes: tuple[Mode, ...]
    dtype: Dtype
    device: str
    width: Size
    heads: Size
    layers: Size
    padding: Share
    causal: bool
    rounds: Size
    budget_s: Seconds | None
    case_timeout_s: Seconds | None
    settings: Settings
    dropout: Share = 0.2  # of hidden states, in training at level `model`
    share_layers: bool | None = None  # None: as each mechanism's card says
    reversible: bool | None = None
    batch: Many | None = None  # None: max(1, tokens // N)
    variants: tuple[Sizes, ...] = ()  # if several are crossed
    fill: bool | None = None  # in decode: no prompts; None: none that take longer than steps
    precision: Share | None = None  # half-width that ends a block
    # options as given, and as the program chose them, as text
    options: Mapping[str, str | bool] = field(default_factory=dict)

    @property
    def batch_tokens(self) -> int | None:
        """c, to which times are scaled; None if the batch is fixed."""
        return self.tokens if self.batch is None else None

    @property
    def sizes(self) -> tuple[Sizes, ...]:
        """Every combination of sizes that is measured."""
        one = Sizes(width=self.width, heads=self.heads, dtype=self.dtype, batch=self.batch)
        return self.variants or (one,)
