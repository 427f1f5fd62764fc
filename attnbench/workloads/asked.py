"""What a user asks of a sweep, as written on the command line, in a file, or in Python.

Every option of `sweep` that says what to measure is one field of `Asked`, with its default, its
help and its reader. The command line, `--config`, `sweep.toml`, `--resume` and `attnbench.sweep`
all take it from there; `workloads.requests` makes the request of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Self

from attnbench.catalogue.registry import unknown
from attnbench.devices.finding import AUTO, kinds
from attnbench.errors import UsageError
from attnbench.records import SHORT_DTYPES, EngineKind, FigureSize, Level, Mode
from attnbench.workloads import axes, option, presets
from attnbench.workloads.option import BOTH, FORMATS, LARGEST_SEED, HelpPanel, Option

OPTION = "option"  # key of a field's metadata


def asked(panel: HelpPanel, default: Any = None, **how: Any) -> Any:
    """A field of `Asked` with the option that it is on the command line."""
    return field(default=default, metadata={OPTION: Option(panel=panel, **how)})


WHAT = partial(asked, HelpPanel.WHAT)
SIZES = partial(asked, HelpPanel.SIZES)
NUMBERS = partial(asked, HelpPanel.NUMBERS)
TIME = partial(asked, HelpPanel.TIME)
CLUSTER = partial(asked, HelpPanel.CLUSTER)
OUTPUT = partial(asked, HelpPanel.OUTPUT)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of a sweep as users write them; None: the program chooses.

    Lists are text too, separated by commas. `read` gives the values, `of` takes numbers and lists.
    """

    models: str = WHAT(
        "@fig2",
        metavar="MECHANISMS",
        read=option.models,
        known=option.known_models,
        help="Names, patterns (synth*), forms (transformer:eager), options"
        " (linformer[rank=64]), groups (@fig2, @table5, @survey, @modern, @decode, @all),"
        " path/to/file.py:NAME.",
    )
    lengths: str = WHAT(
        "128..65536:x2",
        metavar="LENGTHS",
        read=axes.lengths,
        help="Sequence lengths or ranges: 128..65536:x2 (doubling), 100..500:+100 (steps).",
    )
    mode: str = WHAT(
        BOTH,
        metavar="MODE",
        read=option.modes,
        known=lambda text: (*Mode, BOTH),
        help="inference, training, both of these, or decode.",
    )
    level: str | None = WHAT(
        metavar="LEVEL",
        usual="model; attention for decode",
        read=partial(axes.word, known=Level),
        known=lambda text: Level,
        help="What to time: core (q, k, v to output), attention (with projections),"
        " model (a whole classifier).",
    )
    causal: bool = WHAT(False, help="Causal attention: no token sees later ones.")
    padding: str = WHAT(
        "0",
        metavar="SHARE",
        read=partial(axes.number, most=0.95),
        help="Share of each sequence that is padding.",
    )
    tokens: str | None = SIZES(
        metavar="N",
        read=axes.size,
        usual="8k on a CPU, 128k on a GPU",
        help="Tokens per batch, c: the batch is max(1, c // N) sequences.",
    )
    batch: str | None = SIZES(
        metavar="N[,N...]",
        read=axes.wholes,
        usual="c // N; 1 for decode",
        help="Sequences per batch, the same at every length; lists are crossed.",
    )
    preset: str = SIZES(
        "mind-classification",
        metavar="NAME",
        read=option.preset,
        known=lambda text: presets.presets(),
        help="Sizes from a column of Fastformer's Table 9, or of llama or qwen-next.",
    )
    width: str | None = SIZES(
        metavar="N[,N...]",
        read=axes.wholes,
        usual="the preset's",
        help="Width of the model, D; lists are crossed.",
    )
    heads: str | None = SIZES(
        metavar="N[,N...]",
        read=axes.wholes,
        usual="the preset's",
        help="Attention heads, H; lists are crossed.",
    )
    layers: str | None = SIZES(
        metavar="N", read=axes.whole, usual="the preset's", help="Layers of the model."
    )
    dropout: str | None = SIZES(
        metavar="SHARE",
        read=partial(axes.number, most=0.9),
        usual="0.2",
        help="Dropout of hidden states in training.",
    )
    share_layers: bool | None = SIZES(
        usual="as each paper does", help="Share attention parameters among layers."
    )
    reversible: bool | None = SIZES(
        usual="as each paper does",
        help="Reversible layers, which keep no activations, as in Reformer.",
    )
    dtype: str = NUMBERS(
        "float32",
        metavar="DTYPE[,DTYPE...]",
        read=option.dtypes,
        known=lambda text: (*SHORT_DTYPES.values(), *SHORT_DTYPES),
        help="float32, bfloat16, float16, float64 or fp32, bf16, fp16, fp64; lists are crossed.",
    )
    device: str = NUMBERS(
        AUTO,
        metavar="DEVICE",
        read=option.device,
        known=lambda text: (AUTO, *kinds()),
        help="auto, cpu, cuda or cuda:1.",
    )
    threads: str | None = NUMBERS(
        metavar="N",
        read=axes.whole,
        usual="1 on a CPU, else all available cores",
        help="CPU threads. One is timed by CPU time, more by wall time, which is less certain.",
    )
    cold: bool = NUMBERS(False, help="On CUDA: flush the L2 cache before each iteration.")
    cuda_graphs: bool = NUMBERS(False, help="On CUDA: time replays of captured iterations.")
    budget: str | None = TIME(
        metavar="TIME",
        read=axes.seconds,
        usual="5m on a CPU, else none",
        help="Time for the whole sweep: 90s, 10m, none.",
    )
    precision: str | None = TIME(
        metavar="PERCENT",
        read=axes.percent,
        usual="2%",
        help="Stop repeating a block once all its ratios are known to this half-width.",
    )
    rounds: str | None = TIME(
        metavar="N",
        read=axes.whole,
        usual="3, or up to 12 within a budget or with --precision",
        help="Maximum number of repetitions of each case, each in a new process.",
    )
    quick: bool = TIME(False, help="One repetition, fewer samples.")
    case_timeout: str = TIME(
        "20m", metavar="TIME", read=axes.seconds, help="Time limit for one process of one case."
    )
    seed: str = TIME(
        "0",
        metavar="N",
        read=partial(axes.whole, least=0, most=LARGEST_SEED),
        help="Random seed for parameters, inputs and order.",
    )
    on: str | None = CLUSTER(
        metavar="CLUSTER",
        read=partial(axes.word, known=EngineKind),
        known=lambda text: EngineKind,
        help="Measure all shards on a cluster, slurm or ray, then merge and report them.",
    )
    shards: str | None = CLUSTER(metavar="N", read=axes.whole, help="Number of shards, for --on.")
    slurm: str = CLUSTER(
        "",
        metavar="OPTIONS",
        read=option.verbatim,
        help='Options for sbatch: "--gres=gpu:h100:1 --exclusive -t 60".',
    )
    address: str | None = CLUSTER(
        metavar="ADDRESS", read=option.verbatim, help="Address of the Ray cluster."
    )
    formats: str = OUTPUT(
        "png",
        metavar="FORMATS",
        read=option.formats,
        known=lambda text: FORMATS,
        help="File formats of figures: png, svg, pdf.",
    )

    size: str = OUTPUT(
        FigureSize.TEXT,
        metavar="SIZE",
        read=partial(axes.word, known=FigureSize),
        known=lambda text: FigureSize,
        help="Size of figures: column, text (the width of a page) or slide.",
    )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The options with these values, the rest at their defaults. Raises what `texts` raises."""
        return cls(**texts(values))  # type: ignore[arg-type]

    def read(self, name: str) -> Any:
        """The value of an option, None if the program chooses. Raises `UsageError`."""
        value, read = getattr(self, name), options()[name].read
        return value if value is None or read is None else read(value, flag(name))


def options() -> Mapping[str, Option]:
    """Every option by its name in Python, in the order of the help."""
    return {field.name: field.metadata[OPTION] for field in fields(Asked)}


def flag(name: str) -> str:
    """An option as the command line has it: `--case-timeout`."""
    return f"--{name.replace('_', '-')}"


def texts(values: Mapping[str, Any]) -> dict[str, str | bool]:
    """Values of options, by their names, as the command line has them; None is left out.

    Names may be written with hyphens; values are text, numbers, booleans or lists. Raises
    `UsageError` at an unknown name, or a value that has another type or cannot be read.
    """
    known, found = options(), {}
    for written, value in values.items():
        name = written.replace("-", "_")
        if name not in known:
            names = tuple(flag(other).removeprefix("--") for other in known)
            raise UsageError(unknown(written, names, "option"))
        if value is not None:
            found[name] = as_written(name, value)
            if (read := known[name].read) is not None:
                read(str(found[name]), flag(name))
    return found


def as_written(name: str, value: Any) -> str | bool:
    """A value as the command line has it: `128,256` of `[128, 256]`. Raises `UsageError`."""
    if options()[name].read is None:
        if not isinstance(value, bool):
            raise UsageError(f"{flag(name)} is true or false, not {value!r}")
        return value
    if isinstance(value, list | tuple):
        return ",".join(str(as_written(name, part)) for part in value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{flag(name)} is text, a number or a list of them, not {value!r}")
    return str(value)
