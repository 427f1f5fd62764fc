"""What is requested of a sweep: each option once, as a typed field.

The command line, `--config`, `attnbench.sweep`, `sweep.toml` and `--resume` follow from the fields
that `option_field` makes; `running.request.options` reads their text, and
`running.request.requests` replaces what the program chooses.
"""

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import Any

from attnbench.records.bounds import Count, Dtype, Many, Seconds, Share, Size
from attnbench.records.case import Level
from attnbench.records.modes import BOTH, Mode
from attnbench.records.run import Clock


class EngineKind(StrEnum):
    """The engines that run the shards of a sweep on several machines."""

    SLURM = "slurm"
    RAY = "ray"


class HelpPanel(StrEnum):
    """The groups of options in the help."""

    WHAT = "What to measure"
    SIZES = "Sizes"
    NUMBERS = "Precision and device"
    TIME = "How long"
    CLUSTER = "Cluster"
    OUTPUT = "Output"


def option_field(panel: HelpPanel, text: str, default: Any = MISSING, **uses: Any) -> Any:
    """A field that is an option of `sweep`.

    panel: the group of options in the help.
    text: the help.
    default: of the field; without one the program chooses, or the option must be given.
    uses: `chosen`, what the help says that the program chooses where the option is left out;
        `name` of the option, where it is not the field's; `limit`, whether resuming may change
        it; and those of `setting`.
    """
    return field(default=default, metadata={"panel": panel, "help": text, **uses})


def setting(default: Any, **uses: Any) -> Any:
    """A field of `Settings`, with metadata on its uses elsewhere.

    `worker`: its value is sent to measuring processes. `compared`: `compare` names it where two
    sweeps differ in it. `described`: how a report's conditions describe it when it is on.
    """
    return field(default=default, metadata=uses)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a sweep measures; the same for all cases."""

    threads: Size = option_field(
        HelpPanel.NUMBERS,
        "CPU threads. One is timed by CPU time, more by wall time, which is less certain.",
        1,
        chosen="1 on a CPU, else all available cores",
    )
    cold: bool = option_field(
        HelpPanel.NUMBERS,
        "On CUDA: flush the L2 cache before each iteration.",
        default=False,
        chosen="on in decode on a GPU: no model leaves a step's state in the cache",
        worker=True,
        compared=True,
    )
    cuda_graphs: bool = option_field(
        HelpPanel.NUMBERS,
        "On CUDA: time replays of captured iterations.",
        default=False,
        worker=True,
        compared=True,
        described="CUDA graphs",
    )
    energy: bool = option_field(
        HelpPanel.NUMBERS,
        "On NVIDIA GPUs: measure the energy of an iteration, in 4 s more for each run.",
        default=False,
        worker=True,
        described="energy",
    )
    seed: Count = option_field(HelpPanel.TIME, "Random seed for parameters, inputs and order.", 0)
    sample_s: Seconds = 0.8  # timed work of one run, over all laps
    interval_s: Seconds = 0.01  # a shorter iteration is repeated within one sample
    # what counts where there is no device time
    clock: Clock = setting(Clock.WALL, worker=True, compared=True)
    # most seconds of the warm-up; one full iteration always runs
    warmup_s: Seconds = setting(0.25, worker=True)
    faulting_s: Seconds = setting(0.0, worker=True)  # most seconds of it while pages fault
    memory_limit_bytes: Count | None = None  # of one worker's address space

    def fields_with(self, key: str) -> Iterator[tuple[str, Any, Any]]:
        """Name, value and metadata of each field that has metadata of this key."""
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
    step: Size = 1


LEAST_ROUNDS = 4  # before precision may end a block; `analysis.statistics.ratios` says why
DOUBLING = tuple(1 << power for power in range(7, 17))  # 128 to 65,536


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was requested of a sweep, including everything that the program chose by itself.

    Of several `variants`, width, heads, dtype, batch and step are those of the first.
    """

    models: tuple[str, ...] = option_field(
        HelpPanel.WHAT,
        "Names, patterns (synth*), forms (transformer:eager), options (linformer[rank=64]), groups"
        " (@fig2, @table5, @survey, @modern, @decode, @all), path/to/file.py:NAME, stacks of"
        " layers (stack(3*gated_delta_net+grouped_query)).",
        ("@fig2",),
        chosen="@fig2",
    )
    lengths: tuple[Size, ...] = option_field(
        HelpPanel.WHAT,
        "Sequence lengths or ranges: 128..65536:x2 (doubling), 100..500:+100 (steps).",
        DOUBLING,
        chosen="128..65536:x2",
    )
    modes: tuple[Mode, ...] = option_field(
        HelpPanel.WHAT,
        f"{', '.join(Mode)}, or both: training and inference.",
        BOTH,
        name="mode",
        chosen="both",
    )
    level: Level = option_field(
        HelpPanel.WHAT,
        "What to time: core (q, k, v to output), attention (with projections),"
        " model (a whole classifier).",
        chosen="model; attention for decode",
    )
    causal: bool = option_field(
        HelpPanel.WHAT, "Causal attention: no token sees later ones.", default=False
    )
    fill: bool | None = option_field(
        HelpPanel.WHAT,
        "In decode: fill states with random numbers in place of running prompts.",
        default=None,
        chosen="where a prompt takes longer than the steps",
    )
    step: Size = option_field(HelpPanel.WHAT, "In decode: tokens of a step.", 1, chosen="1")
    padding: Share = option_field(
        HelpPanel.WHAT, "Share of each sequence that is padding.", 0.0, chosen="0"
    )
    preset: str = option_field(
        HelpPanel.SIZES,
        "Sizes from a column of Fastformer's Table 9, of llama or qwen-next, or for a gpu.",
        "mind-classification",
    )
    width: Size = option_field(HelpPanel.SIZES, "Width of the model, D.", chosen="the preset's")
    heads: Size = option_field(HelpPanel.SIZES, "Attention heads, H.", chosen="the preset's")
    tokens: Many = option_field(
        HelpPanel.SIZES,
        "Tokens per batch, c: the batch is max(1, c // N) sequences.",
        chosen="8k on a CPU, 128k on a GPU, or the preset's",
    )
    batch: Many | None = option_field(
        HelpPanel.SIZES,
        "Sequences per batch, the same at every length.",
        None,
        chosen="c // N; 1 for decode",
    )
    layers: Size = option_field(HelpPanel.SIZES, "Layers of the model.", chosen="the preset's")
    dropout: Share = option_field(
        HelpPanel.SIZES, "Dropout of hidden states in training.", 0.2, chosen="0.2"
    )
    dtype: Dtype = option_field(
        HelpPanel.NUMBERS,
        "float32, bfloat16, float16, float64 or fp32, bf16, fp16, fp64.",
        "float32",
        chosen="float32, as the papers measured, or the preset's",
    )
    device: str = option_field(HelpPanel.NUMBERS, "auto, cpu, cuda or cuda:1.", chosen="auto")
    quick: bool = option_field(HelpPanel.TIME, "One repetition, fewer samples.", default=False)
    budget_s: Seconds | None = option_field(
        HelpPanel.TIME,
        "Time for the whole sweep: 90s, 10m, none.",
        chosen="5m on a CPU, else none",
        name="budget",
        limit=True,
    )
    precision: Share | None = option_field(
        HelpPanel.TIME,
        "Repeat a length in a mode until all its ratios are known to ± this share.",
        None,
        chosen="2%",
        limit=True,
    )
    rounds: Size = option_field(
        HelpPanel.TIME,
        "Maximum number of repetitions of each case, each in a new process.",
        chosen="3, or up to 12 within a budget or with --precision",
        limit=True,
    )
    case_timeout_s: Seconds | None = option_field(
        HelpPanel.TIME,
        "Time limit for one process of one case.",
        1200.0,
        chosen="20m",
        name="case_timeout",
        limit=True,
    )
    settings: Settings
    variants: tuple[Sizes, ...] = ()  # if several are crossed

    @property
    def batch_tokens(self) -> int | None:
        """c, to which times are scaled; None if the batch is fixed."""
        return self.tokens if self.batch is None else None

    @property
    def sizes(self) -> tuple[Sizes, ...]:
        """Every combination of sizes that is measured."""
        return self.variants or (Sizes(**{f.name: getattr(self, f.name) for f in fields(Sizes)}),)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """On which machines the shards of a sweep are measured."""

    on: EngineKind | None = option_field(
        HelpPanel.CLUSTER,
        "Measure all shards on a cluster, slurm or ray, then merge and report them.",
        None,
    )
    shards: Size | None = option_field(HelpPanel.CLUSTER, "Number of shards, for --on.", None)
    slurm: str = option_field(
        HelpPanel.CLUSTER, 'Options for sbatch: "--gres=gpu:h100:1 -t 60".', ""
    )
