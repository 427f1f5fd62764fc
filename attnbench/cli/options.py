"""Options that several verbs read: text to values, and what the program chooses by itself."""

from attnbench.device import Device
from attnbench.errors import UsageError
from attnbench.records import ITEM_BYTES, Mode, Selection, Settings

DTYPES = tuple(ITEM_BYTES)
FORMATS = ("png", "svg", "pdf")

# above these a number is a slip of the hand, and no prediction could hold it
LARGEST = 1 << 20
LARGEST_SEED = (1 << 32) - 1


def modes(text: str) -> tuple[Mode, ...]:
    """`inference`, `training`, `both`, or a list."""
    if text == "both":
        return (Mode.TRAINING, Mode.INFERENCE)
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    if not set(words) <= set(Mode):
        raise UsageError(f"--mode {text!r} is not inference, training or both")
    return tuple(Mode(word) for word in words)


def dtype(text: str) -> str:
    """The name of a floating-point type."""
    if text not in DTYPES:
        raise UsageError(f"--dtype {text!r} is not one of {', '.join(DTYPES)}")
    return text


def formats(text: str) -> tuple[str, ...]:
    """Formats of figures."""
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    if not set(words) <= set(FORMATS):
        raise UsageError(f"--formats {text!r}: figures come as {', '.join(FORMATS)}")
    return words


def selections(models: str) -> tuple[Selection, ...]:
    """What `--models` names, without loading torch. Raises `UsageError` at a misspelt name."""
    from attnbench.workloads import axes
    from attnbench.workloads.presets import expand

    return tuple(chosen for part in axes.parts(models, "--models") for chosen in expand(part))


def rounds(quick: bool, budget_s: float | None) -> int:
    """At most how many rounds: a budget buys more than three while it lasts."""
    return 1 if quick else 3 if budget_s is None else 12


def settings(
    device: Device, threads: int | None, seed: int, quick: bool, cold: bool, budget_s: float | None
) -> Settings:
    """How to measure: short runs under a budget, long ones without."""
    from attnbench.measure.environment import cores

    if cold and not device.flushes_cache:
        raise UsageError(f"--cold flushes a GPU's cache; it has no effect on {device.title()}")
    return Settings(
        seed=seed,
        cold=cold,
        threads=threads or cores(),
        **device.sampling(quick, bounded=quick or budget_s is not None),
    )
