"""Options for Typer by their declaration, and what several verbs read of them."""

import inspect

import pytest

from attnbench.commands.options import (
    formats,
    offered,
    option,
    selections,
    shared_option,
    usual_sizes,
    with_sweep_options,
)
from attnbench.errors import UsageError
from attnbench.records import Selection
from attnbench.running.request import completion
from attnbench.running.request.options import options


def test_a_verb_gets_typed_values_of_what_was_written_alone():
    got = []

    def verb(written, folder: str = "."):
        got.append((written, folder))

    taken = with_sweep_options(only=("lengths", "budget", "causal"), defaults={"budget": "1m"})
    made = taken(verb)
    assert [*inspect.signature(made).parameters] == ["lengths", "causal", "budget", "folder"]
    made(lengths="1k,2k", causal=None, budget="none", folder="x")
    assert got == [({"lengths": (1024, 2048), "budget": None}, "x")]


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        (None, ()),
        ("png", ("png",)),
        ("svg,png,svg", ("svg", "png")),
        (" svg , png ", ("svg", "png")),
    ],
)
def test_formats_are_listed_once_in_their_order(text, chosen):
    assert formats(text, ("png", "svg")) == chosen


def test_an_unknown_format_is_refused_with_those_that_are_known():
    with pytest.raises(UsageError, match="--formats 'png,gif': known are png, svg"):
        formats("png,gif", ("png", "svg"))


def test_models_are_read_without_their_cards():
    found = selections("linformer[rank=4],@fig2")
    assert found[0] == Selection(name="linformer", options=(("rank", 4),))
    assert len(found) > 3
    with pytest.raises(UsageError, match="did you mean linformer"):
        selections("linfromer")


def test_an_option_of_a_verb_has_the_help_of_its_declaration_and_its_default():
    known = options()["lengths"]
    made = shared_option("lengths")
    assert made.param_decls == ("--lengths",)
    assert made.help == f"{known.help}  [default: {known.chosen}]"
    assert made.rich_help_panel == known.panel
    own = shared_option("lengths", text="Two lengths.", usual="", panel="Other")
    assert (own.help, own.rich_help_panel) == ("Two lengths.", "Other")


def test_sizes_are_lists_unless_a_verb_takes_one():
    crossed = shared_option("width", usual="")
    single = shared_option("width", usual="", single=True)
    assert crossed.help.endswith("; lists are combined.")
    assert not single.help.endswith("lists are combined.")
    assert single.metavar == crossed.metavar.partition("[")[0] != crossed.metavar


def test_a_flag_can_be_switched_off_where_its_default_is_neither():
    assert shared_option("cold").param_decls == ("--cold/--no-cold",)
    assert shared_option("causal").param_decls == ("--causal",)


def test_the_usual_sizes_are_those_of_the_usual_preset():
    assert usual_sizes() == {"width": "256", "heads": "16", "dtype": "float32"}


def test_a_shell_offers_values_of_what_was_typed_and_files_otherwise():
    assert offered(completion.no_values) is None
    complete = offered(completion.words(("png", "svg")))
    assert [*inspect.signature(complete).parameters] == ["incomplete"]
    assert complete("s") == ["svg"]


def test_the_help_of_a_verb_names_its_own_defaults():
    taken = with_sweep_options(only=("budget", "rounds"), defaults={"budget": "1m"})
    made = inspect.signature(taken(lambda written: None)).parameters
    assert made["budget"].default.help.endswith("  [default: 1m]")
    assert made["rounds"].default.help.endswith(f"  [default: {options()['rounds'].chosen}]")


def test_what_a_verb_must_be_given_stands_first_in_its_help():
    def verb(written, further=option("N", "More."), needed=option("N", "Which.", default=...)):
        """A verb with an option of each kind."""

    made = inspect.signature(with_sweep_options(only=("budget",))(verb)).parameters
    assert [*made] == ["needed", "budget", "further"]
