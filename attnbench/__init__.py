"""attnbench: what does each attention mechanism cost, on this machine, at this length?

PYTEST_DONT_REWRITE: a process that times tests has imported it before pytest begins.
"""

from typing import TYPE_CHECKING

from attnbench.version import __version__ as __version__

if TYPE_CHECKING:
    from attnbench.commands import notebook

    load = notebook.load
    sweep = notebook.sweep

__all__ = ("__version__", "load", "sweep")


def __getattr__(name: str) -> object:
    """Import `sweep` and `load`, with what they need, on first access."""
    if name not in __all__:
        raise AttributeError(f"module 'attnbench' has no attribute {name!r}")
    from attnbench.commands import notebook as sweeps

    return getattr(sweeps, name)


def __dir__() -> list[str]:
    return [*__all__]
