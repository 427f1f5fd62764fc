"""What is requested of a sweep."""

from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from attnbench.records.bounds import Count, Dtype, Many, Seconds, Share, Size
from attnbench.records.case import Level, Mode
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


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a sweep measures; the same for all cases."""

    seed: Count = 0
    threads: Size = 1
    sample_s: Seconds = 0.8  # timed work of one run, over all laps
    interval_s: Seconds = 0.01  # a shorter iteration is repeated within one sample
    clock: Clock = Clock.WALL  # where there is no device time
    warmup_s: Seconds = 0.25  # most seconds of the warm-up; one full iteration always runs
    faulting_s: Seconds = 0.0  # the warm-up goes on for so long while pages fault
    cold: bool = False  # on CUDA: flush the second-level cache before each iteration
    cuda_graphs: bool = False  # on CUDA: capture each iteration, and replay it
    memory_limit_bytes: Count | None = None  # of one worker's address space


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One of the combinations that a sweep with several widths, heads, types or batches crosses."""

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
    variants: tuple[Variant, ...] = ()  # if several
    precision: Share | None = None  # half-width that ends a block; None: older journals

    @property
    def batch_tokens(self) -> int | None:
        """c, to which times are scaled; None if the batch is fixed."""
        return self.tokens if self.batch is None else None

    @property
    def each(self) -> tuple["Request", ...]:
        """A request for each variant, alone."""
        singles = (replace(self, **asdict(variant), variants=()) for variant in self.variants)
        return tuple(singles) or (self,)
