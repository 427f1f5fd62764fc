"""attnbench: what does each attention mechanism cost, on this machine, at this length?"""

from attnbench.version import __version__ as __version__

# typing has it too, but takes milliseconds to load, in which no signal is handled
TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike
    from typing import Any

    from attnbench.api.sweeps import Sweep
    from attnbench.run.session import Progress


def sweep(
    *,
    out: "str | PathLike[str] | None" = None,
    progress: "Callable[[Progress], None] | None" = None,
    **options: "Any",
) -> "Sweep":
    """Measure a sweep, `attnbench.sweep(models=["fastformer"], lengths=[512, 1024])`; return it.

    `options` are those of `attnbench sweep`, with underscores, as text, numbers or lists. `out` is
    the folder, by default `reports/<date>`. Nothing is printed; `progress` is called whenever
    another process has its turn. Raises `UsageError`, `CannotRun` or `StoreError`.
    """
    from attnbench.api import sweeps

    return sweeps.sweep(out, progress, **options)


def load(folder: "str | PathLike[str]", at: "str | None" = None) -> "Sweep":
    """A stored sweep, or only its variant `at`, such as `D512`.

    Raises `StoreError` if the folder holds none, or one without cases, and `UsageError` if it has
    no such variant.
    """
    from attnbench.api.sweeps import Sweep

    return Sweep(folder, at)
