"""The options of a sweep, as written on the command line, in a file, or in Python.

Every option that says what to measure is declared once, as a field of `Options` with its default,
its help and its reader. The command line, `--config`, `sweep.toml` and `attnbench.sweep` follow
from it; a field of the same name in `Request` or `Settings` gets its value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Self

from attnbench.catalogue.registry import unknown_name_message
from attnbench.devices.finding import AUTO
from attnbench.errors import UsageError
from attnbench.records import EngineKind, Level, Mode
from attnbench.workloads import option as kinds
from attnbench.workloads.option import FLAG, SECONDS, WHOLE, WHOLES, HelpPanel, Kind, OptionSpec

OPTION = "option"  # key of a field's metadata


def declare(
    panel: HelpPanel, text: str, kind: Kind = FLAG, default: Any = None, default_text: str = ""
) -> Any:
    """A field of `Options`, with its command-line option as metadata; `text` is its help."""
    option = OptionSpec(panel=panel, help=text, kind=kind, default_text=default_text)
    return field(default=default, metadata={OPTION: option})


WHAT = partial(declare, HelpPanel.WHAT)
SIZES = partial(declare, HelpPanel.SIZES)
NUMBERS = partial(declare, HelpPanel.NUMBERS)
TIME = partial(declare, HelpPanel.TIME)
CLUSTER = partial(declare, HelpPanel.CLUSTER)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a sweep as text, flags as booleans; None: the program chooses.

    Lists are separated by commas. `value` reads an option, `of` takes numbers and lists.
    """

    models: str = WHAT(
        "Names, patterns (synth*), forms (transformer:eager), options (linformer[rank=64]), groups"
        " (@fig2, @table5, @survey, @modern, @decode, @all), path/to/file.py:NAME, stacks of"
        " layers (stack(3*gated_delta_net+grouped_query)).",
        kinds.MODELS,
        "@fig2",
    )
    lengths: str = WHAT(
        "Sequence lengths or ranges: 128..65536:x2 (doubling), 100..500:+100 (steps).",
        kinds.LENGTHS,
        "128..65536:x2",
    )
    mode: str = WHAT(
        f"{', '.join(Mode)}, or both: training and inference.", kinds.MODES, kinds.BOTH
    )
    level: str | None = WHAT(
        "What to time: core (q, k, v to output), attention (with projections),"
        " model (a whole classifier).",
        kinds.word("LEVEL", Level),
        default_text="model; attention for decode",
    )
    causal: bool = WHAT("Causal attention: no token sees later ones.", default=False)
    fill: bool | None = WHAT(
        "In decode: fill states with random numbers in place of running prompts.",
        default_text="where a prompt takes longer than the steps",
    )
    padding: str = WHAT("Share of each sequence that is padding.", kinds.share(0.95), "0")
    tokens: str | None = SIZES(
        "Tokens per batch, c: the batch is max(1, c // N) sequences.",
        kinds.SIZE,
        default_text="8k on a CPU, 128k on a GPU",
    )
    batch: str | None = SIZES(
        "Sequences per batch, the same at every length; lists are crossed.",
        WHOLES,
        default_text="c // N; 1 for decode",
    )
    preset: str = SIZES(
        "Sizes from a column of Fastformer's Table 9, or of llama or qwen-next.",
        kinds.PRESET,
        "mind-classification",
    )
    width: str | None = SIZES(
        "Width of the model, D; lists are crossed.", WHOLES, default_text="the preset's"
    )
    heads: str | None = SIZES(
        "Attention heads, H; lists are crossed.", WHOLES, default_text="the preset's"
    )
    layers: str | None = SIZES("Layers of the model.", WHOLE, default_text="the preset's")
    dropout: str | None = SIZES(
        "Dropout of hidden states in training.", kinds.share(0.9), default_text="0.2"
    )
    share_layers: bool | None = SIZES(
        "Share attention parameters among layers.", default_text="as each paper does"
    )
    reversible: bool | None = SIZES(
        "Reversible layers, which keep no activations, as in Reformer.",
        default_text="as each paper does",
    )
    dtype: str = NUMBERS(
        "float32, bfloat16, float16, float64 or fp32, bf16, fp16, fp64; lists are crossed.",
        kinds.DTYPES,
        "float32",
    )
    device: str = NUMBERS("auto, cpu, cuda or cuda:1.", kinds.DEVICE, AUTO)
    threads: str | None = NUMBERS(
        "CPU threads. One is timed by CPU time, more by wall time, which is less certain.",
        WHOLE,
        default_text="1 on a CPU, else all available cores",
    )
    cold: bool = NUMBERS("On CUDA: flush the L2 cache before each iteration.", default=False)
    cuda_graphs: bool = NUMBERS("On CUDA: time replays of captured iterations.", default=False)
    energy: bool = NUMBERS(
        "On NVIDIA GPUs: measure the energy of an iteration, in 4 s more for each run.",
        default=False,
    )
    budget: str | None = TIME(
        "Time for the whole sweep: 90s, 10m, none.", SECONDS, default_text="5m on a CPU, else none"
    )
    precision: str | None = TIME(
        "Stop repeating a block once all its ratios are known to this half-width.",
        kinds.PERCENT,
        default_text="2%",
    )
    rounds: str | None = TIME(
        "Maximum number of repetitions of each case, each in a new process.",
        WHOLE,
        default_text="3, or up to 12 within a budget or with --precision",
    )
    quick: bool = TIME("One repetition, fewer samples.", default=False)
    case_timeout: str = TIME("Time limit for one process of one case.", SECONDS, "20m")
    seed: str = TIME("Random seed for parameters, inputs and order.", kinds.SEED, "0")
    on: str | None = CLUSTER(
        "Measure all shards on a cluster, slurm or ray, then merge and report them.",
        kinds.word("CLUSTER", EngineKind),
    )
    shards: str | None = CLUSTER("Number of shards, for --on.", WHOLE)
    slurm: str = CLUSTER(
        'Options for sbatch: "--gres=gpu:h100:1 -t 60".', kinds.text("OPTIONS"), ""
    )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The options with these values, the rest at their defaults. Raises what `texts` raises."""
        return cls(**texts(values))  # type: ignore[arg-type]

    def value(self, name: str) -> Any:
        """The value of an option, None if the program chooses. Raises `UsageError`."""
        text, read = getattr(self, name), option_specs()[name].kind.read
        return text if text is None or read is None else read(text, flag(name))

    def with_chosen(self, chosen: Mapping[str, str]) -> Self:
        """The options with these texts where the program chooses."""
        texts: dict[str, Any] = {n: chosen[n] for n in chosen if getattr(self, n) is None}
        return replace(self, **texts)

    def measurement_options(self) -> dict[str, str | bool]:
        """The texts of those options that say what is measured."""
        names = (name for name, option in option_specs().items() if option.affects_measurement)
        return {name: text for name in names if (text := getattr(self, name)) is not None}


def option_specs() -> Mapping[str, OptionSpec]:
    """Every option by its name in Python, in the order of the help."""
    return {field.name: field.metadata[OPTION] for field in fields(Options)}


def flag(name: str) -> str:
    """An option as the command line has it: `--case-timeout`."""
    return f"--{name.replace('_', '-')}"


def words(name: str, value: str | bool | None) -> list[str]:
    """An option with its value as the command line has them: `--seed 7`, `--no-fill`."""
    if isinstance(value, bool):
        return [flag(name if value else f"no_{name}")]
    return [flag(name), str(value)]


def texts(values: Mapping[str, Any]) -> dict[str, str | bool]:
    """Values of options, by their names, as the command line has them; None is left out.

    Names may be written with hyphens; values are text, numbers, booleans or lists. Raises
    `UsageError` at an unknown name, or a value that has another type or cannot be read.
    """
    known, found = option_specs(), {}
    for written, value in values.items():
        name = written.replace("-", "_")
        if name not in known:
            names = tuple(flag(other).removeprefix("--") for other in known)
            raise UsageError(unknown_name_message(written, names, "option"))
        if value is not None:
            found[name] = as_text(name, value)
            if (read := known[name].kind.read) is not None:
                read(str(found[name]), flag(name))
    return found


def as_text(name: str, value: Any) -> str | bool:
    """A value as the command line has it: `128,256` of `[128, 256]`. Raises `UsageError`."""
    if option_specs()[name].kind.read is None:
        if not isinstance(value, bool):
            raise UsageError(f"{flag(name)} is true or false, not {value!r}")
        return value
    if hasattr(value, "tolist"):  # an array, or a number of one
        value = value.tolist()
    if isinstance(value, list | tuple | range):
        return ",".join(str(as_text(name, part)) for part in value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{flag(name)} is text, a number or a list of them, not {value!r}")
    return str(value)
