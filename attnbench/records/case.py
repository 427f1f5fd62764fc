"""A case: a mechanism in one form with options on one workload, and the label that names it."""

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

from attnbench.records import modes
from attnbench.records.bounds import Dtype, Many, Option, Share, Size
from attnbench.records.modes import USUAL, Mode
from attnbench.records.series import Series


class Level(StrEnum):
    """How much is measured around a mechanism."""

    CORE = "core"  # q, k, v to o, without the projections
    ATTENTION = "attention"  # one sub-layer, [B, N, D] to [B, N, D]
    MODEL = "model"  # the classifier of the Fastformer paper


@dataclass(frozen=True, kw_only=True)
class Shell:
    """The classifier around a mechanism at level `model` (Fastformer paper, section 4.1)."""

    layers: Size = 2
    vocabulary: Size = 30_522
    classes: Size = 18
    dropout: Share = 0.2


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Sizes and mode of a measurement."""

    batch: Many
    seq_len: Size
    width: Size = 256
    heads: Size = 16
    level: Level = Level.MODEL
    mode: Mode = USUAL
    dtype: Dtype = "float32"
    device: str = "cpu"
    causal: bool = False
    padding: Share = 0.0  # share of each sequence that is padding, at its end
    shell: Shell | None = None  # at level `model` only
    step: Size = 1  # tokens of each sequence that a step of decoding takes, the last of N

    @property
    def tokens(self) -> int:
        """B · N."""
        return self.batch * self.seq_len

    @property
    def outputs(self) -> int:
        """The tokens whose outputs one iteration computes: B · N; of a step, its own."""
        return self.batch * self.step if self.steps else self.tokens

    @property
    def trains(self) -> bool:
        """Whether an iteration computes gradients."""
        return modes.find(self.mode).trains

    @property
    def steps(self) -> bool:
        """Whether an iteration is a step of decoding, not a pass over whole sequences."""
        return modes.find(self.mode).steps

    @property
    def head_width(self) -> int:
        """d = D / H."""
        return self.width // self.heads

    @property
    def inner_width(self) -> int:
        """H · d, which is D unless a mechanism has heads of its own."""
        return self.heads * self.head_width

    def __str__(self) -> str:
        sizes = f"B{self.batch}-N{self.seq_len}-D{self.width}-H{self.heads}"
        parts = [sizes, self.level, self.mode, self.dtype, self.device]
        parts += ["causal"] * self.causal
        if self.step > 1:
            parts.append(f"step={self.step}")
        if self.padding > 0:
            parts.append(f"padding={self.padding}")
        values = asdict(self.shell or Shell())
        parts += [f"{name}={v}" for name, v in values.items() if v != getattr(Shell, name)]
        return "/".join(parts)


SLICE = 128  # tokens of one sequence, so that its float64 run is cheap at any length


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
        return Series(mechanism=self.mechanism, form=self.form, options=self.options).plain

    @property
    def slice(self) -> Self:
        """The case of one short sequence whose numerical error stands in for this one's."""
        w = self.workload
        short = replace(w, batch=1, seq_len=min(w.seq_len, SLICE), padding=0.0)
        return replace(self, workload=replace(short, level=Level.ATTENTION, shell=None))

    def __str__(self) -> str:
        return f"{self.series}/{self.workload}"


def canonical(data: Any) -> str:
    """JSON with sorted keys and no spaces: equal data, equal text."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
