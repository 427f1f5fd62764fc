"""Options for Typer: those of `sweep` by their declaration, and what several verbs share."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import Any, TypeAlias

import typer

from attnbench.errors import UsageError
from attnbench.mechanisms import catalogue
from attnbench.records import HelpPanel, selection
from attnbench.running.request import axes, completion
from attnbench.running.request.completion import Complete
from attnbench.running.request.options import flag, options
from attnbench.running.request.options import read as read_options

# of a verb's function: the typed values of those options of `sweep` that the user wrote, by name
WRITTEN = "written"
KEYWORD = inspect.Parameter.KEYWORD_ONLY
Function: TypeAlias = Callable[..., None]


def option(
    metavar: str,
    text: str,
    panel: str | None = None,
    default: Any = None,
    names: Sequence[str] = (),
    complete: Complete = completion.no_values,
) -> Any:
    """An option with a value for Typer.

    metavar: the word that stands for the value in the help.
    text: the help.
    panel: the group of options in the help.
    default: `...` for an option that must be given.
    names: its names, such as `--as`; without them the name of the parameter.
    complete: the values that a shell offers.
    """
    return typer.Option(
        default,
        *names,
        metavar=metavar,
        help=text,
        rich_help_panel=panel,
        autocompletion=offered(complete),
    )


def argument(metavar: str, text: str, complete: Complete = completion.no_values) -> Any:
    """An argument for `Annotated`: its name and text in the help, and what a shell offers."""
    return typer.Argument(metavar=metavar, help=text, autocompletion=offered(complete))


def offered(complete: Complete) -> Callable[[str], list[str]] | None:
    """What Typer calls for the values of an option; it reads the name of the parameter."""
    if complete is completion.no_values:
        return None

    def values(incomplete: str) -> list[str]:
        return complete(incomplete)

    return values


def switch(name: str, text: str, panel: str | None = None) -> Any:
    """An option without a value, off by default."""
    return typer.Option(False, name, help=text, rich_help_panel=panel)


def as_json(panel: str | None = None) -> Any:
    """The option for data in place of text."""
    return switch("--json", "Print the results as JSON.", panel)


def out() -> Any:
    """The option for the folder of a sweep."""
    text = "Folder of the sweep.  [default: reports/<date>]"
    return option("FOLDER", text, HelpPanel.OUTPUT)


def resume() -> Any:
    """The option that continues a sweep."""
    text = "Resume the sweep in this folder; its options need not be repeated."
    return option("FOLDER", text, HelpPanel.OUTPUT)


def trace() -> Any:
    """The option that profiles one case."""
    return option(
        "CASE",
        "Only profile one case, such as fastformer/training/1024, and write its trace for"
        " ui.perfetto.dev into the folder.",
        HelpPanel.OUTPUT,
    )


def shard() -> Any:
    """The option that measures a part of a sweep."""
    text = "Measure only shard I of N, e.g. 2/6; attnbench merge joins them."
    return option("I/N", text, HelpPanel.CLUSTER)


def dry_run() -> Any:
    """The option that measures nothing."""
    return switch("--dry-run", "Print the plan with predictions; run nothing.", HelpPanel.OUTPUT)


def shared_option(
    name: str,
    default: Any = None,
    panel: str | None = None,
    text: str = "",
    usual: str | None = None,
    single: bool = False,
) -> Any:
    """An option of `sweep` for Typer, by its declaration.

    name: in Python, such as `case_timeout`.
    default: of the verb, where Typer shall fill it in.
    panel: the group of options in the help; without it the option's own.
    text: the help, where that of `sweep` does not fit.
    usual: what the help names as the default where the verb fills it in; without it that of
        `sweep`; an empty text names none.
    single: whether the verb takes one value and no list.
    """
    known = options()[name]
    panel = panel or known.panel
    shown = text or known.help
    if known.is_crossed and not (single or text):
        shown = f"{shown.rstrip('.')}; lists are combined."
    if usual is None:
        plain = "" if known.flag or known.default is None else str(known.default)
        usual = known.chosen or plain
    if usual and default is None:
        shown += f"  [default: {usual}]"
    if known.flag:
        # what is neither on nor off by default has both names
        either = f"/{flag('no_' + name)}" if usual else ""
        return typer.Option(None, flag(name) + either, help=shown, rich_help_panel=panel)
    metavar = known.metavar.partition("[")[0] if single else known.metavar
    return option(metavar, shown, panel, default, [flag(name)], known.complete)


def usual_sizes() -> Mapping[str, str]:
    """What the helps of verbs without `--preset` name as the defaults of sizes."""
    column = catalogue.preset(options()["preset"].default)
    return {"width": str(column.width), "heads": str(column.heads), "dtype": column.dtype}


def with_sweep_options(
    *,
    only: Collection[str] | None = None,
    defaults: Mapping[str, str] = MappingProxyType({}),
    texts: Mapping[str, str] = MappingProxyType({}),
    single: Collection[str] = (),
) -> Callable[[Function], Function]:
    """A decorator that gives a verb options of `sweep`, as real options of its own.

    The verb's parameter `written` gets the typed values of those that the user wrote, by name.

    only: names of the options that the verb takes; without it all.
    defaults: texts that the help shows as the verb's defaults, by name; the verb fills them in.
    texts: helps, by name, where that of `sweep` does not fit.
    single: names of options that take one value and no list.
    """
    names = [name for name in options() if only is None or name in only]

    def decorated(verb: Function) -> Function:
        @wraps(verb)
        def command(**values: Any) -> None:
            written = read_options({name: values.pop(name) for name in names})
            verb(**{WRITTEN: written}, **values)

        own = [
            each.replace(kind=KEYWORD)
            for name, each in inspect.signature(verb).parameters.items()
            if name != WRITTEN
        ]
        taken = [
            inspect.Parameter(
                name,
                KEYWORD,
                default=shared_option(
                    name,
                    text=texts.get(name, ""),
                    usual=defaults.get(name),
                    single=name in single,
                ),
                annotation=bool | None if options()[name].flag else str | None,
            )
            for name in names
        ]
        # the help has the groups in the order of the first option of each, and options in theirs
        needed = [each for each in own if getattr(each.default, "default", None) is ...]
        parameters = [*needed, *taken, *(each for each in own if each not in needed)]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorated


def formats(text: str | None, known: Collection[str]) -> tuple[str, ...]:
    """What `--formats` lists, each once; nothing if it was left out. Raises `UsageError`."""
    chosen = () if text is None else axes.words_of(text)
    if not set(chosen) <= set(known):
        raise UsageError(f"--formats {text!r}: known are {', '.join(known)}")
    return chosen


def selections(models: str) -> tuple[selection.Selection, ...]:
    """What `--models` names, without loading torch. Raises `UsageError` at a misspelt name."""
    return tuple(
        chosen for part in catalogue.listed(models, "--models") for chosen in catalogue.expand(part)
    )
