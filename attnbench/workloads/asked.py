"""What a user asks of a sweep, as written on the command line, in a file, or in Python.

Every option of `sweep` that says what to measure is one field of `Asked`, with its default, its
help and its reader. The command line, `--config`, `sweep.toml`, `--resume` and `attnbench.sweep`
all take it from there; `workloads.requests` makes the request of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any, Self, get_type_hints

from attnbench.device import AUTO, kinds
from attnbench.errors import UsageError
from attnbench.fleet.engine import EngineKind
from attnbench.records import SHORT_DTYPES, FigureSize, Level, Mode
from attnbench.registry import unknown
from attnbench.workloads import axes, option, presets
from attnbench.workloads.option import BOTH, FORMATS, LARGEST_SEED, HelpPanel, Option

WHAT = partial(Option, panel=HelpPanel.WHAT)
SIZES = partial(Option, panel=HelpPanel.SIZES)
NUMBERS = partial(Option, panel=HelpPanel.NUMBERS)
TIME = partial(Option, panel=HelpPanel.TIME)
CLUSTER = partial(Option, panel=HelpPanel.CLUSTER)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of a sweep as users write them; None: the program chooses.

    Lists are text too, separated by commas. `read` gives the values, `of` takes numbers and lists.
    """

    models: Annotated[
        str,
        WHAT(
            metavar="MECHANISMS",
            read=option.models,
            known=option.known_models,
            help="Names, patterns (synth*), forms (transformer:eager), options"
            " (linformer[rank=64]), groups (@fig2, @table5, @survey, @modern, @decode, @all),"
            " path/to/file.py:NAME.",
        ),
    ] = "@fig2"
    lengths: Annotated[
        str,
        WHAT(
            metavar="LENGTHS",
            read=axes.lengths,
            help="Sequence lengths or ranges: 128..65536:x2 (doubling), 100..500:+100 (steps).",
        ),
    ] = "128..65536:x2"
    mode: Annotated[
        str,
        WHAT(
            metavar="MODE",
            read=option.modes,
            known=lambda text: (*Mode, BOTH),
            help="inference, training, both of these, or decode.",
        ),
    ] = BOTH
    level: Annotated[
        str | None,
        WHAT(
            metavar="LEVEL",
            usual="model; attention for decode",
            read=partial(axes.word, known=Level),
            known=lambda text: Level,
            help="What to time: core (q, k, v to output), attention (with projections),"
            " model (a whole classifier).",
        ),
    ] = None
    causal: Annotated[bool, WHAT(help="Causal attention: no token sees later ones.")] = False
    padding: Annotated[
        str,
        WHAT(
            metavar="SHARE",
            read=partial(axes.number, most=0.95),
            help="Share of each sequence that is padding.",
        ),
    ] = "0"
    tokens: Annotated[
        str | None,
        SIZES(
            metavar="N",
            read=axes.size,
            usual="8k on a CPU, 128k on a GPU",
            help="Tokens per batch, c: the batch is max(1, c // N) sequences.",
        ),
    ] = None
    batch: Annotated[
        str | None,
        SIZES(
            metavar="N[,N...]",
            read=axes.wholes,
            usual="c // N; 1 for decode",
            help="Sequences per batch, the same at every length; lists are crossed.",
        ),
    ] = None
    preset: Annotated[
        str,
        SIZES(
            metavar="NAME",
            read=option.preset,
            known=lambda text: presets.presets(),
            help="Sizes from a column of Fastformer's Table 9, or of llama or qwen-next.",
        ),
    ] = "mind-classification"
    width: Annotated[
        str | None,
        SIZES(
            metavar="N[,N...]",
            read=axes.wholes,
            usual="the preset's",
            help="Width of the model, D; lists are crossed.",
        ),
    ] = None
    heads: Annotated[
        str | None,
        SIZES(
            metavar="N[,N...]",
            read=axes.wholes,
            usual="the preset's",
            help="Attention heads, H; lists are crossed.",
        ),
    ] = None
    layers: Annotated[
        str | None,
        SIZES(metavar="N", read=axes.whole, usual="the preset's", help="Layers of the model."),
    ] = None
    dropout: Annotated[
        str | None,
        SIZES(
            metavar="SHARE",
            read=partial(axes.number, most=0.9),
            usual="0.2",
            help="Dropout of hidden states in training.",
        ),
    ] = None
    share_layers: Annotated[
        bool | None,
        SIZES(usual="as each paper does", help="Share attention parameters among layers."),
    ] = None
    reversible: Annotated[
        bool | None,
        SIZES(
            usual="as each paper does",
            help="Reversible layers, which keep no activations, as in Reformer.",
        ),
    ] = None
    dtype: Annotated[
        str,
        NUMBERS(
            metavar="DTYPE[,DTYPE...]",
            read=option.dtypes,
            known=lambda text: (*SHORT_DTYPES.values(), *SHORT_DTYPES),
            help="float32, bfloat16, float16, float64 or fp32, bf16, fp16, fp64;"
            " lists are crossed.",
        ),
    ] = "float32"
    device: Annotated[
        str,
        NUMBERS(
            metavar="DEVICE",
            read=option.device,
            known=lambda text: (AUTO, *kinds()),
            help="auto, cpu, cuda or cuda:1.",
        ),
    ] = AUTO
    threads: Annotated[
        str | None,
        NUMBERS(metavar="N", read=axes.whole, usual="all available cores", help="CPU threads."),
    ] = None
    cold: Annotated[bool, NUMBERS(help="On CUDA: flush the L2 cache before each iteration.")] = (
        False
    )
    cuda_graphs: Annotated[bool, NUMBERS(help="On CUDA: time replays of captured iterations.")] = (
        False
    )
    budget: Annotated[
        str | None,
        TIME(
            metavar="TIME",
            read=axes.seconds,
            usual="5m on a CPU, else none",
            help="Time for the whole sweep: 90s, 10m, none.",
        ),
    ] = None
    rounds: Annotated[
        str | None,
        TIME(
            metavar="N",
            read=axes.whole,
            usual="3, or up to 12 within a budget",
            help="Maximum number of repetitions of each case, each in a new process.",
        ),
    ] = None
    quick: Annotated[bool, TIME(help="One repetition, fewer samples.")] = False
    case_timeout: Annotated[
        str,
        TIME(metavar="TIME", read=axes.seconds, help="Time limit for one process of one case."),
    ] = "20m"
    seed: Annotated[
        str,
        TIME(
            metavar="N",
            read=partial(axes.whole, least=0, most=LARGEST_SEED),
            help="Random seed for parameters, inputs and order.",
        ),
    ] = "0"
    on: Annotated[
        str | None,
        CLUSTER(
            metavar="CLUSTER",
            read=partial(axes.word, known=EngineKind),
            known=lambda text: EngineKind,
            help="Measure all shards on a cluster, slurm or ray, then merge and report them.",
        ),
    ] = None
    shards: Annotated[
        str | None,
        CLUSTER(metavar="N", read=axes.whole, help="Number of shards, for --on."),
    ] = None
    slurm: Annotated[
        str,
        CLUSTER(
            metavar="OPTIONS",
            read=option.verbatim,
            help='Options for sbatch: "--gres=gpu:h100:1 --exclusive -t 60".',
        ),
    ] = ""
    address: Annotated[
        str | None,
        CLUSTER(metavar="ADDRESS", read=option.verbatim, help="Address of the Ray cluster."),
    ] = None
    formats: Annotated[
        str,
        Option(
            panel=HelpPanel.OUTPUT,
            metavar="FORMATS",
            read=option.formats,
            known=lambda text: FORMATS,
            help="File formats of figures: png, svg, pdf.",
        ),
    ] = "png"

    size: Annotated[
        str,
        Option(
            panel=HelpPanel.OUTPUT,
            metavar="SIZE",
            read=partial(axes.word, known=FigureSize),
            known=lambda text: FigureSize,
            help="Size of figures: column, text (the width of a page) or slide.",
        ),
    ] = FigureSize.TEXT

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
    hints = get_type_hints(Asked, include_extras=True)
    return {field.name: hints[field.name].__metadata__[0] for field in fields(Asked)}


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
