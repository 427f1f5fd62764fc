"""Options that several verbs share; those that `sweep` has too are described there once."""

from collections.abc import Sequence
from typing import Any

import typer

from attnbench.records.selection import Selection, parts
from attnbench.workloads import axes
from attnbench.workloads.options import options
from attnbench.workloads.presets import expand


def option(
    metavar: str,
    text: str,
    panel: str | None = None,
    default: Any = None,
    names: Sequence[str] = (),
    **how: Any,
) -> Any:
    """An option with a value, named after its parameter; `how` goes to Typer."""
    return typer.Option(default, *names, metavar=metavar, help=text, rich_help_panel=panel, **how)


def switch(name: str, text: str, panel: str | None = None) -> Any:
    """An option without a value, off by default."""
    return typer.Option(False, name, help=text, rich_help_panel=panel)


def as_json(panel: str | None = None) -> Any:
    """The option for data in place of text."""
    return switch("--json", "Print the results as JSON.", panel)


def threshold_option(panel: str | None = None) -> Any:
    """The option for the smallest time change that counts."""
    return option(
        "SHARE", "Ignore relative time changes below this.  [default: 0.02, on CUDA 0.03]", panel
    )


def read(name: str, text: str | None) -> Any:
    """The value of an option that `sweep` has too; None if it was left out. Raises `UsageError`."""
    return None if text is None else options()[name].read(text)


def threshold(text: str | None, usual: float) -> float:
    """A relative change of time. Raises `BadAxis`."""
    return usual if text is None else axes.number(text, "--threshold")


def selections(models: str) -> tuple[Selection, ...]:
    """What `--models` names, without loading torch. Raises `UsageError` at a misspelt name."""
    return tuple(chosen for part in parts(models, "--models") for chosen in expand(part))
