"""The nouns that every floor shares: frozen, JSON-able, knowing nobody.

Sizes, the same letters everywhere:

    B  batch, sequences            N  length, tokens of one sequence
    D  width of the model          H  heads
    d  width of one head, D / H    c  tokens of a batch, B · N

Times are seconds, memory is bytes; only `units` knows milliseconds and MiB.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, Self

Option = str | int | float | bool | None

# bytes of one number
ITEM_BYTES: Mapping[str, int] = MappingProxyType(
    {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
)


class Level(StrEnum):
    """How much is measured around a mechanism."""

    CORE = "core"  # q, k, v to o, without the linear maps
    ATTENTION = "attention"  # one sub-layer, [B, N, D] to [B, N, D]
    MODEL = "model"  # the classifier of the Fastformer paper


class Mode(StrEnum):
    """Forward without gradients, or forward, loss, backward and optimiser step."""

    INFERENCE = "inference"
    TRAINING = "training"


class Family(StrEnum):
    """The classes of "Efficient Transformers: A Survey", and none of them."""

    FULL = "full"
    FIXED = "FP"
    FIXED_MEMORY = "FP+M"
    MEMORY = "M"
    LEARNED = "LP"
    LOW_RANK = "LR"
    LOW_RANK_LEARNED = "LR+LP"
    KERNEL = "KR"
    RECURRENCE = "RC"
    UNKNOWN = "–"  # a user's module says nothing of it


class Causality(StrEnum):
    """Whether a mechanism can be blind to the future."""

    NEVER = "never"
    OPTIONAL = "optional"
    ALWAYS = "always"


class Outcome(StrEnum):
    """How a run ended; all of them are results."""

    OK = "ok"
    OOM = "oom"  # memory ran out
    TIMEOUT = "timeout"  # killed at its time limit
    CRASHED = "crashed"  # the process died
    FAILED = "failed"  # wrong shape, not finite, or an exception
    UNSUPPORTED = "unsupported"  # this machine or mechanism cannot run it
    SKIPPED = "skipped"  # not started: predicted to exceed a limit, or a shorter length did


class Part(StrEnum):
    """What one process measures of a case."""

    TIME = "time"
    MEMORY = "memory"  # peaks and counts of one iteration


@dataclass(frozen=True, kw_only=True)
class Shell:
    """The classifier around a mechanism at level `model` (Fastformer paper, section 4.1)."""

    layers: int = 2
    vocabulary: int = 30_522
    classes: int = 18
    feed_forward: int | None = None  # None: as wide as the model
    dropout: float = 0.2
    share_layers: bool | None = None  # None: as the mechanism's paper does
    reversible: bool | None = None  # None: as the mechanism's card says


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Sizes and mode of what is measured."""

    batch: int
    seq_len: int
    width: int = 256
    heads: int = 16
    level: Level = Level.MODEL
    mode: Mode = Mode.INFERENCE
    dtype: str = "float32"
    device: str = "cpu"
    causal: bool = False
    padding: float = 0.0  # share of each sequence that is padding, at its end
    shell: Shell | None = None  # at level `model` only

    @property
    def tokens(self) -> int:
        """B · N, what one iteration works on."""
        return self.batch * self.seq_len

    @property
    def head_width(self) -> int:
        """d = D / H."""
        return self.width // self.heads

    def __str__(self) -> str:
        sizes = f"B{self.batch}-N{self.seq_len}-D{self.width}-H{self.heads}"
        parts = [sizes, self.level, self.mode, self.dtype, self.device]
        parts += ["causal"] * self.causal
        parts += [f"padding={self.padding:g}"] * (self.padding > 0)
        parts += _differences(self.shell, Shell()) if self.shell else []
        return "/".join(parts)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The workload whose `asdict` is `data`."""
        shell = data.get("shell")
        values = {
            **data,
            "level": Level(data["level"]),
            "mode": Mode(data["mode"]),
            "shell": Shell(**shell) if shell else None,
        }
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mechanism in one form with its options on one workload.

    `options` holds what differs from the mechanism's own defaults, sorted by name.
    """

    mechanism: str
    form: str
    options: tuple[tuple[str, Option], ...] = ()
    workload: Workload

    @property
    def key(self) -> str:
        """The store's key: the whole case as canonical JSON."""
        return canonical(asdict(self))

    @property
    def series(self) -> str:
        """What stays the same along a curve of the figure: `linformer:eager[rank=16]`."""
        chosen = ",".join(f"{name}={value}" for name, value in self.options)
        return f"{self.mechanism}:{self.form}" + (f"[{chosen}]" if chosen else "")

    def __str__(self) -> str:
        return f"{self.series}/{self.workload}"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The case whose `asdict` is `data`."""
        return cls(
            mechanism=data["mechanism"],
            form=data["form"],
            options=tuple((name, value) for name, value in data["options"]),
            workload=Workload.from_json(data["workload"]),
        )


class Sample(NamedTuple):
    """One timed interval: `iterations` in a row; every time is of the whole interval."""

    iterations: int
    wall_s: float
    cpu_s: float  # of the process, all threads
    device_s: float | None  # between device events; None on a CPU
    forward_s: float
    backward_s: float
    step_s: float


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a sweep measures; the same for all its cases."""

    seed: int = 0
    threads: int = 1
    min_samples: int = 1
    sample_s: float = 0.8  # enough timed work for one run
    interval_s: float = 0.01  # a shorter iteration is repeated within one sample
    half_width: float = 0.03  # stop early: 95 % interval of the median, relative
    warmup_s: float = 3.0  # cap of the warm-up; one full iteration always runs
    cold: bool = False  # on CUDA: flush the second-level cache before each iteration
    memory_limit_bytes: int | None = None  # ceiling of one worker's address space


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one process gave for one part of one case in one round.

    `values` holds single numbers under keys of `metrics.TABLE`; `notes` holds words, such as the
    kernel that ran. `elapsed_s` is the life of the process as its parent saw it.
    """

    case: str
    part: Part
    round: int
    outcome: Outcome
    reason: str = ""
    samples: tuple[Sample, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    elapsed_s: float = 0.0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The run whose `asdict` is `data`."""
        values = {
            **data,
            "part": Part(data["part"]),
            "outcome": Outcome(data["outcome"]),
            "samples": tuple(Sample(*row) for row in data["samples"]),
        }
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class CardFacts:
    """What a report needs of a mechanism, stored with the sweep so that no torch is loaded.

    `complexity` is as printed in a Table 7; the exponents are those of N, of the core alone. Year
    and exponents of a user's module are not known.
    """

    mechanism: str
    title: str
    authors: str
    year: int | None
    source: str
    family: Family
    causality: Causality
    complexity: str
    time_exponent: float | None
    memory_exponent: float | None
    forms: tuple[str, ...]
    options: Mapping[str, Option]  # every option with its default

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The facts whose `asdict` is `data`."""
        values = {
            **data,
            "family": Family(data["family"]),
            "causality": Causality(data["causality"]),
            "forms": tuple(data["forms"]),
        }
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A case with what is known before it runs.

    `flops` are of the forward pass of the whole workload, exact; seconds (of one iteration) and
    bytes are predictions. `refusal` says why it cannot run at all, or is empty.
    """

    case: Case
    parameters: int
    projection_flops: int
    core_flops: int
    shell_flops: int  # everything of level `model` that is not the mechanism
    predicted_bytes: int
    predicted_s: float
    refusal: str = ""

    @property
    def flops(self) -> int:
        """Forward FLOPs of one iteration."""
        return self.projection_flops + self.core_flops + self.shell_flops

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The plan line whose `asdict` is `data`."""
        return cls(**{**data, "case": Case.from_json(data["case"])})


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The machine and versions that a session of a sweep ran on."""

    attnbench: str
    python: str
    torch: str
    system: str
    processor: str
    cores: int  # that the process may use
    threads: int
    memory_bytes: int  # that the process may use
    device: str  # "cpu" or the name of the GPU
    device_memory_bytes: int | None = None
    cuda: str = ""
    driver: str = ""
    tf32: bool = False
    matmul_flops: float | None = None  # measured peak, FLOP/s
    copy_bytes: float | None = None  # measured peak, bytes/s
    load: float | None = None  # one-minute load average when it started
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> tuple[str | int, ...]:
        """What must agree for times to be compared."""
        return (self.processor, self.cores, self.threads, self.torch, self.device)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked of a sweep, with everything the program chose by itself filled in."""

    models: tuple[str, ...]
    lengths: tuple[int, ...]
    tokens: int
    preset: str
    level: Level
    modes: tuple[Mode, ...]
    dtype: str
    device: str
    width: int
    heads: int
    layers: int
    padding: float
    causal: bool
    rounds: int
    budget_s: float | None
    case_timeout_s: float | None
    settings: Settings
    dropout: float = 0.2  # of hidden states, in training at level `model`
    share_layers: bool | None = None  # None: as each mechanism's card says
    reversible: bool | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The request whose `asdict` is `data`."""
        values = {
            **data,
            "models": tuple(data["models"]),
            "lengths": tuple(data["lengths"]),
            "level": Level(data["level"]),
            "modes": tuple(Mode(mode) for mode in data["modes"]),
            "settings": Settings(**data["settings"]),
        }
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A plan of cases and the runs they gave, as read from a journal."""

    name: str
    request: Request
    sessions: tuple[Environment, ...]
    cards: tuple[CardFacts, ...]
    plan: tuple[Planned, ...]
    runs: tuple[Run, ...]
    finished: bool
    warnings: tuple[str, ...] = ()  # lines set aside while reading


def canonical(data: Any) -> str:
    """JSON with sorted keys and no spaces: equal data, equal text."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _differences(shell: Shell, default: Shell) -> list[str]:
    pairs = [(f.name, getattr(shell, f.name), getattr(default, f.name)) for f in fields(shell)]
    return [f"{name}={value}" for name, value, usual in pairs if value != usual]
