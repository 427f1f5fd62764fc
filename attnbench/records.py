"""The records that all floors share: frozen, storable as JSON, independent of all other modules.

Sizes, the same letters everywhere:

    B  batch, sequences            N  length, tokens of one sequence
    D  width of the model          H  heads
    d  width of one head, D / H    c  tokens of a batch, B · N

Times are in seconds and memory in bytes; only `units` knows milliseconds and MiB.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from sys import float_info
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, Self

from msgspec import Meta, convert

COUNTABLE = 1 << 53  # of anything counted: up to here every whole number is a float
LONGEST_S = 1e13  # more than any option can say

# Share of the wall time that a process may neither compute nor wait for a core before CPU time is
# not believed: beside a load of 9, reading the two accounts apart made up to 1.3 % of a lap.
AWAY = 0.05

# bytes of one number
ITEM_BYTES: Mapping[str, int] = MappingProxyType(
    {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
)
# what a user may write for them; records hold the full names
SHORT_DTYPES: Mapping[str, str] = MappingProxyType(
    {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64"}
)

# what `msgspec.convert` accepts: bounds beyond any machine, with finite products
Size = Annotated[int, Meta(ge=1, le=1 << 40)]
Many = Annotated[int, Meta(ge=1, le=COUNTABLE)]
Count = Annotated[int, Meta(ge=0, le=COUNTABLE)]
Work = Annotated[int, Meta(ge=0)]  # of what may be asked for, whether or not it can run
Number = Annotated[float, Meta(ge=-1e100, le=1e100)]
Amount = Annotated[float, Meta(ge=0, le=1e100)]
Seconds = Annotated[float, Meta(ge=0, le=LONGEST_S)]
Duration = Annotated[float, Meta(ge=1e-12, le=LONGEST_S)]  # of something that happened
Load = Annotated[float, Meta(ge=0, le=1e6)]  # in cores
Share = Annotated[float, Meta(ge=0, le=1)]
Year = Annotated[int, Meta(ge=1900, le=2100)]
Exponent = Annotated[float, Meta(ge=0, le=10)]
Dtype = Annotated[str, Meta(pattern=f"^({'|'.join(ITEM_BYTES)})$")]
Finite = Annotated[float, Meta(ge=-float_info.max, le=float_info.max)]
Option = str | int | Finite | bool | None


class Level(StrEnum):
    """How much is measured around a mechanism."""

    CORE = "core"  # q, k, v to o, without the projections
    ATTENTION = "attention"  # one sub-layer, [B, N, D] to [B, N, D]
    MODEL = "model"  # the classifier of the Fastformer paper


class Mode(StrEnum):
    """What one iteration does."""

    INFERENCE = "inference"  # a forward pass without gradients
    TRAINING = "training"  # forward, loss, backward and optimiser step
    DECODE = "decode"  # the output of token N, from the state that those before it left


PASSES = (Mode.TRAINING, Mode.INFERENCE)  # the modes that pass over whole sequences


class FigureSize(StrEnum):
    """Where a figure is meant to stand."""

    COLUMN = "column"
    TEXT = "text"
    SLIDE = "slide"


class Family(StrEnum):
    """The classes of "Efficient Transformers: A Survey", and of later mechanisms."""

    FULL = "full"
    FIXED = "FP"
    FIXED_MEMORY = "FP+M"
    MEMORY = "M"
    LEARNED = "LP"
    LOW_RANK = "LR"
    LOW_RANK_LEARNED = "LR+LP"
    KERNEL = "KR"
    RECURRENCE = "RC"
    SHARED = "SH"  # this and the next two are not in the survey: shared or compressed keys
    STATE = "ST"  # a recurrent state of fixed size
    MIXING = "MX"  # a fixed linear map of the tokens
    UNKNOWN = "–"  # of a user's module


class Causality(StrEnum):
    """Whether a mechanism can run causally."""

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


class Cause(StrEnum):
    """Why a case was not started, or that its process was killed."""

    BUDGET = "budget"  # it did not fit into the time of the whole sweep
    CASE_TIMEOUT = "case timeout"  # it would exceed the time limit of one case
    MEMORY_LIMIT = "memory limit"  # it would not fit into memory
    OOM = "oom"  # a shorter length ran out of memory
    TIMEOUT = "timeout"  # a shorter length exceeded its time limit
    KILLED = "killed"  # by SIGKILL or together with all others: its own code may not be the reason


class Part(StrEnum):
    """What one process measures of a case."""

    TIME = "time"
    MEMORY = "memory"  # peaks and counts of one iteration


class Clock(StrEnum):
    """What counts as the time of a sample that has no device time."""

    WALL = "wall time"
    CPU = "CPU time"  # of the process, summed over threads


class Disturbance(StrEnum):
    """What made a sample on a CPU longer than the work in it."""

    FAULTS = "page faults"
    SLOW_CORE = "a slow core"


@dataclass(frozen=True, order=True)
class Shard:
    """Part `number`, from 1, of a sweep that is divided among `of` processes."""

    number: Many
    of: Many

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a run was measured; older journals do not say, and only GPUs have a UUID."""

    host: str = ""
    device_uuid: str = ""
    shard: Shard | None = None  # None: the sweep was not divided
    attempt: Many = 1  # sessions of this journal so far

    @property
    def node(self) -> str:
        """The host, and its device if that has a UUID."""
        return " ".join(filter(None, (self.host, self.device_uuid)))


@dataclass(frozen=True, kw_only=True)
class Shell:
    """The classifier around a mechanism at level `model` (Fastformer paper, section 4.1)."""

    layers: Size = 2
    vocabulary: Size = 30_522
    classes: Size = 18
    feed_forward: Size | None = None  # None: as wide as the model
    dropout: Share = 0.2
    share_layers: bool | None = None  # None: as the mechanism's paper does
    reversible: bool | None = None  # None: as the mechanism's card says


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Sizes and mode of a measurement."""

    batch: Many
    seq_len: Size
    width: Size = 256
    heads: Size = 16
    level: Level = Level.MODEL
    mode: Mode = Mode.INFERENCE
    dtype: Dtype = "float32"
    device: str = "cpu"
    causal: bool = False
    padding: Share = 0.0  # share of each sequence that is padding, at its end
    shell: Shell | None = None  # at level `model` only

    @property
    def tokens(self) -> int:
        """B · N."""
        return self.batch * self.seq_len

    @property
    def outputs(self) -> int:
        """The tokens whose outputs one iteration computes: B · N, in decode B."""
        return self.batch if self.mode is Mode.DECODE else self.tokens

    @property
    def head_width(self) -> int:
        """d = D / H."""
        return self.width // self.heads

    def __str__(self) -> str:
        sizes = f"B{self.batch}-N{self.seq_len}-D{self.width}-H{self.heads}"
        parts = [sizes, self.level, self.mode, self.dtype, self.device]
        parts += ["causal"] * self.causal
        parts += [f"padding={self.padding}"] * (self.padding > 0)
        values = asdict(self.shell or Shell())
        parts += [f"{name}={v}" for name, v in values.items() if v != getattr(Shell, name)]
        return "/".join(parts)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A mechanism as `--models` names it; without a form, the default of each workload.

    Before groups and patterns are expanded, `name` and `form` may hold wildcards.
    """

    name: str
    form: str | None = None
    options: tuple[tuple[str, Option], ...] = ()

    def __str__(self) -> str:
        form = f":{self.form}" if self.form else ""
        return self.name + form + (f"[{options_text(self.options)}]" if self.options else "")


# a mechanism may be the path of a file and contain anything, so the sizes are matched at the end
LABEL = re.compile(
    r"(?P<mechanism>.+):(?P<form>\w+)(?:\[(?P<options>[^\[\]]*)\])?"
    r"/B(?P<batch>\d+)-N(?P<seq_len>\d+)-D(?P<width>\d+)-H(?P<heads>\d+)"
    r"/(?P<level>\w+)/(?P<mode>\w+)/(?P<dtype>\w+)/(?P<device>[\w:]+)(?P<further>(?:/[^/]+)*)",
    re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mechanism in one form with options on one workload.

    `options` holds those that differ from the mechanism's defaults, sorted by name.
    """

    mechanism: str
    form: str
    options: tuple[tuple[str, Option], ...] = ()
    workload: Workload

    @cached_property
    def key(self) -> str:
        """The store's key: the whole case as canonical JSON."""
        return canonical(asdict(self))

    @property
    def series(self) -> str:
        """The case without its workload, as a curve is labelled: `linformer:eager[rank=16]`."""
        return str(Selection(name=self.mechanism, form=self.form, options=self.options))

    def __str__(self) -> str:
        return f"{self.series}/{self.workload}"

    @classmethod
    def read(cls, label: str) -> Self:
        """The case with this label. Raises `ValueError` if there is none."""
        try:
            case = convert(_parts(label), cls)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{label!r} does not read as a case") from error
        if not label.endswith(f"/{case.workload}"):
            raise ValueError(f"{label!r} does not read as a case; {str(case)!r} does")
        return case


class Sample(NamedTuple):
    """One timed interval of `iterations` in a row; all times are of the whole interval.

    Runs of one round with the same mode and length took turns: their samples with the same `lap`
    were taken one after the other. Without a lap (schema 1) a run was measured by itself.

    A GPU may be held until work is enqueued, so that `device_s` shows no launches. Then `wall_s`
    includes the holds, and `unheld_s` is the wall time of one iteration without, measured apart.

    Phases are timed by the device, or by `clock`. What is `disturbed` was so again when it was
    taken again, as often as there was time for.
    """

    iterations: Many
    wall_s: Duration
    cpu_s: Seconds  # of the process, summed over threads
    device_s: Duration | None  # between device events; None on a CPU
    forward_s: Seconds
    backward_s: Seconds
    step_s: Seconds
    lap: Count | None = None
    enqueue_s: Seconds | None = None  # until the host had enqueued everything; None on a CPU
    unheld_s: Duration | None = None  # None where nothing was held
    clock: Clock = Clock.WALL  # which time counts, where there is no device time
    waited_s: Seconds | None = None  # of its threads, for a core; None where unknown
    disturbed: Disturbance | None = None
    probe_s: Duration | None = None  # fixed work beside it, which tells how fast the core was

    @property
    def seconds(self) -> float:
        """Seconds of one iteration: device time where the device has a clock, else by `clock`.

        CPU time does not see a process that sleeps or lets others compute: where that is more than
        `AWAY` of the wall time, it counts too.
        """
        if self.device_s is not None:
            counted_s = self.device_s
        elif self.clock == Clock.WALL:
            counted_s = self.wall_s
        else:
            away_s = self.away_s if self.away_s > AWAY * self.wall_s else 0.0
            counted_s = self.cpu_s + away_s or self.wall_s
        return counted_s / self.iterations

    @property
    def away_s(self) -> float:
        """Wall time in which the process neither computed nor waited for a core; 0 if unknown."""
        if self.waited_s is None:
            return 0.0
        return max(0.0, self.wall_s - self.cpu_s - self.waited_s)

    @property
    def unheld_wall_s(self) -> float:
        """Wall time of one iteration, without holds."""
        return self.wall_s / self.iterations if self.unheld_s is None else self.unheld_s


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
class Run:
    """What one process measured of one part of one case in one round.

    `values` holds single numbers under keys of `metrics.TABLE`; `notes` holds text, such as the
    kernel that ran. `elapsed_s` is the time that the parent waited for the process.
    """

    case: str
    part: Part
    round: Count
    outcome: Outcome
    cause: Cause | None = None  # of a case that was not started, or was killed
    reason: str = ""
    samples: tuple[Sample, ...] = ()
    values: Mapping[str, Number] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    elapsed_s: Seconds = 0.0
    origin: Origin = Origin()


@dataclass(frozen=True, kw_only=True)
class CardFacts:
    """What a report needs of a mechanism, stored with the sweep so that torch is not loaded.

    `complexity` is as papers print it; the exponents are the core's, of N. Year and exponents of a
    user's module are unknown.
    """

    mechanism: str
    title: str
    authors: str
    year: Year | None
    source: str
    family: Family
    causality: Causality
    complexity: str
    time_exponent: Exponent | None
    memory_exponent: Exponent | None
    forms: tuple[str, ...]
    options: Mapping[str, Option]  # every option with the default
    symbols: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of the complexity


class Block(NamedTuple):
    """What the cases that are raced with one another share."""

    mode: Mode
    seq_len: int
    width: int
    heads: int
    dtype: str
    batch: int


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A case with what is known before it runs.

    FLOPs are those of the forward pass on the whole workload, in decode of one step, exact; those
    of its prefill are apart. Seconds (of one iteration), bytes and bytes moved are predictions.
    `refusal` says why it cannot run at all, or is empty. What `compiles` is compiled by torch in
    every process.
    """

    case: Case
    parameters: Count
    projection_flops: Work
    core_flops: Work
    shell_flops: Work  # everything of level `model` that is not the mechanism
    predicted_bytes: Work
    predicted_s: Amount
    refusal: str = ""
    compiles: bool = False
    prefill_flops: Work = 0  # in decode, of the pass over the prompt
    prefill_s: Amount = 0.0  # of the same pass
    moved_bytes: Count = 0  # by the forward pass; 0 in older journals

    @cached_property
    def block(self) -> Block:
        """The block of the case."""
        w = self.case.workload
        return Block(w.mode, w.seq_len, w.width, w.heads, w.dtype, w.batch)

    @property
    def flops(self) -> int:
        """Forward FLOPs of one iteration."""
        return self.projection_flops + self.core_flops + self.shell_flops


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """What must agree between two machines for their times to be compared."""

    processor: str
    cores: Size
    threads: Size
    torch: str
    device: str  # "cpu" or the name of the GPU

    def differences(self, other: Self) -> tuple[str, ...]:
        """The fields that differ: `torch: 2.12.0 and 2.13.0`."""
        first, second = asdict(self), asdict(other)
        return tuple(f"{n}: {first[n]} and {second[n]}" for n in first if first[n] != second[n])


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The machine and versions that a session of a sweep ran on."""

    attnbench: str
    python: str
    torch: str
    system: str
    processor: str
    cores: Size  # available to the process
    threads: Size
    memory_bytes: Count  # available to the process
    device: str  # "cpu" or the name of the GPU
    host: str = ""
    device_uuid: str = ""  # of a GPU
    device_memory_bytes: Count | None = None
    cuda: str = ""
    driver: str = ""
    tf32: bool = False
    matmul_flops: Amount | None = None  # measured peak, FLOP/s
    copy_bytes: Amount | None = None  # measured peak, bytes/s
    load: Load | None = None  # one-minute load average when it started
    busy_cores: Load | None = None  # of `cores`, taken by other processes when it started
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> Fingerprint:
        """The part that must agree for times to be compared."""
        return Fingerprint(**{f.name: getattr(self, f.name) for f in fields(Fingerprint)})


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One of the combinations that a sweep with several widths, heads, types or batches crosses."""

    width: Size
    heads: Size
    dtype: Dtype
    batch: Many | None = None  # None: c // N


LEAST_ROUNDS = 4  # before precision may end a block; `analysis.ratios` says why


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
    divisions: frozenset[str] = frozenset()  # digests of what each shard measures
    over_budget: bool = False  # the budget ended it, or one of its shards

    @property
    def missing(self) -> Iterator[Shard]:
        """The shards that the journal lacks, unless it was resumed as a whole sweep."""
        if self.shards and all(run.origin.shard for run in self.runs):
            of = self.shards[0].of
            yield from (s for i in range(1, of + 1) if (s := Shard(i, of)) not in self.shards)


def canonical(data: Any) -> str:
    """JSON with sorted keys and no spaces: equal data, equal text."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def options_text(options: Iterable[tuple[str, Option]]) -> str:
    """`rank=64,share=True`, each value in a form that `option_value` reads."""
    return ",".join(f"{name}={_option_text(value)}" for name, value in options)


def option_value(text: str) -> Option:
    """`true`, `false`, `none`, an integer, a number, quoted text, or the text itself."""
    words: dict[str, Option] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    readers: tuple[Callable[[str], Option], ...] = (int, float)
    for read in (json.loads,) if text.startswith('"') else readers:
        with suppress(ValueError):
            return read(text)
    return text


def _parts(label: str) -> dict[str, Any]:
    """A case as data. Raises `ValueError`."""
    if (match := LABEL.fullmatch(label)) is None:
        raise ValueError
    case = match.groupdict()
    options = re.findall(r"(\w+)=([^,]*)", case.pop("options") or "")
    further = re.findall(r"/(\w+)=?([^/]*)", case.pop("further"))
    texts = {name: case.pop(name) for name in list(case) if name not in ("mechanism", "form")}
    texts |= {name: text or "true" for name, text in further}
    workload = {name: option_value(text) for name, text in texts.items()}
    shell = {f.name: workload[f.name] for f in fields(Shell) if f.name in workload}
    at_model = {"shell": shell} if workload["level"] == Level.MODEL else {}
    values = tuple((name, option_value(text)) for name, text in options)
    return {**case, "options": values, "workload": {**workload, **at_model}}


def _option_text(value: Option) -> str:
    """The value; text is quoted where it could be read as something else."""
    plain = r"[^\s\[\],\"]+"
    if not isinstance(value, str) or (
        re.fullmatch(plain, value) and value.isprintable() and option_value(value) == value
    ):
        return str(value)
    return re.sub(r"[\[\],]", lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value))
