"""Options that several verbs share, and what the program chooses for those left out."""

from typing import Annotated

import typer

from attnbench.device import Device
from attnbench.errors import UsageError
from attnbench.records import SHORT_DTYPES, Level, Mode, Selection, Settings
from attnbench.render.sizes import Size

DTYPES = ", ".join(f"{full} or {short}" for short, full in SHORT_DTYPES.items())
FORMATS = ("png", "svg", "pdf")

# larger numbers are typing errors, and no prediction could hold them
LARGEST = 1 << 20
LARGEST_SEED = (1 << 32) - 1

DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
FormatsOption = Annotated[str, typer.Option(help="File formats of figures: png, svg, pdf.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
SizeOption = Annotated[
    Size,
    typer.Option(help="Size of figures: a column of a page, its text width, or a slide."),
]
LevelOption = Annotated[
    Level,
    typer.Option(help="core: without projections; attention: with them; model: a classifier."),
]
ModesOption = Annotated[str, typer.Option(help="inference, training or both.")]
SeedOption = Annotated[
    int, typer.Option(min=0, max=LARGEST_SEED, help="Random seed for parameters, inputs and order.")
]
ThreadsOption = Annotated[
    int | None, typer.Option(min=1, max=LARGEST, help="CPU threads; default: all cores it may use.")
]
ThresholdOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Ignore relative changes of time below this; default: 0.02, on CUDA 0.03.",
    ),
]


def modes(text: str) -> tuple[Mode, ...]:
    """`inference`, `training`, `both`, or a list. Raises `UsageError`."""
    if text == "both":
        return (Mode.TRAINING, Mode.INFERENCE)
    if not set(words := listed(text)) <= set(Mode):
        raise UsageError(f"--mode {text!r} is not inference, training or both")
    return tuple(map(Mode, words))


def dtype(text: str) -> str:
    """The full name of a floating-point type: `bfloat16` of `bf16`. Raises `UsageError`."""
    full = SHORT_DTYPES.get(text, text)
    if full not in SHORT_DTYPES.values():
        raise UsageError(f"--dtype {text!r} is not one of {DTYPES}")
    return full


def formats(text: str) -> tuple[str, ...]:
    """File formats of figures. Raises `UsageError`."""
    if not set(words := listed(text)) <= set(FORMATS):
        raise UsageError(f"--formats {text!r}: figures come as {', '.join(FORMATS)}")
    return words


def listed(text: str) -> tuple[str, ...]:
    """The words of a list, each once."""
    return tuple(dict.fromkeys(word.strip() for word in text.split(",")))


def selections(models: str) -> tuple[Selection, ...]:
    """What `--models` names, without loading torch. Raises `UsageError` at a misspelt name."""
    from attnbench.workloads import axes
    from attnbench.workloads.presets import expand

    return tuple(chosen for part in axes.parts(models, "--models") for chosen in expand(part))


def rounds(quick: bool, budget_s: float | None) -> int:
    """The most rounds of a sweep: more than three fit into some budgets."""
    return 1 if quick else 3 if budget_s is None else 12


def settings(
    device: Device,
    threads: int | None,
    seed: int,
    quick: bool,
    cold: bool,
    budget_s: float | None,
    cuda_graphs: bool = False,
) -> Settings:
    """How to measure: short runs under a budget, long ones without."""
    from attnbench.measure.environment import cores

    if cold and not device.flushes_cache:
        raise UsageError(f"--cold flushes a GPU's cache; it has no effect on {device.title()}")
    if cuda_graphs and not device.captures:
        raise UsageError(f"--cuda-graphs needs a GPU; it has no effect on {device.title()}")
    return Settings(
        seed=seed,
        cold=cold,
        cuda_graphs=cuda_graphs,
        threads=threads or cores(),
        **device.sampling(quick, bounded=quick or budget_s is not None),
    )
