"""Options that several verbs read: text to values, and what the program chooses by itself."""

import re

from attnbench.errors import CannotRun, UsageError
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


def device(text: str) -> str:
    """`cpu`, or a CUDA device that is there; `auto` takes the GPU if there is one."""
    if text == "cpu":
        return text
    if text not in ("auto", "cuda") and not re.fullmatch("cuda:[0-9]{1,3}", text):
        raise UsageError(f"--device {text!r} is not auto, cpu, cuda or cuda:1")
    import torch

    count = torch.cuda.device_count()
    if text == "auto":
        return "cuda" if count else "cpu"
    if int(text.partition(":")[2] or 0) >= count:
        raise CannotRun(f"--device {text}: this machine has {count} CUDA devices; try --device cpu")
    return text


def selections(models: str) -> tuple[Selection, ...]:
    """What `--models` names, without loading torch. Raises `UsageError` at a misspelt name."""
    from attnbench.workloads import axes
    from attnbench.workloads.presets import expand

    return tuple(chosen for part in axes.parts(models, "--models") for chosen in expand(part))


def rounds(quick: bool, budget_s: float | None) -> int:
    """At most how many rounds: a budget buys more than three while it lasts."""
    return 1 if quick else 3 if budget_s is None else 12


def settings(
    place: str, threads: int | None, seed: int, quick: bool, cold: bool, budget_s: float | None
) -> Settings:
    """How to measure: short runs under a budget, long ones without."""
    from attnbench.measure.environment import cores, memory_bytes

    if cold and place == "cpu":
        raise UsageError("--cold flushes a GPU's cache; it has no effect on a CPU")
    bounded = budget_s is not None or quick
    common = {"seed": seed, "cold": cold, "threads": threads or cores()}
    if place != "cpu":
        return Settings(
            **common,
            sample_s=0.5 if bounded else 3.0,
            interval_s=0.001,
            warmup_s=1.0 if bounded else 3.0,
        )
    return Settings(
        **common,
        sample_s=0.25 if quick else 0.5 if bounded else 3.0,
        warmup_s=0.1 if quick else 0.2 if bounded else 3.0,
        memory_limit_bytes=memory_bytes(),
    )
