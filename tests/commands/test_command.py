"""A verb as a command: its help in groups, with words for values, and its line of usage."""

import pytest

from attnbench.commands.command import argument_texts, is_argument
from attnbench.commands.verbs import VERBS, command
from attnbench.running.request.options import options
from tests.commands.commands import here


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_has_words_for_values_and_no_types_or_bounds(verb):
    shown = here(verb, "--help").stdout
    for absurd in ("<str>", "<int", "<path>", "<float", "<=x", "TEXT", "INTEGER", "PATH", "{"):
        assert absurd not in shown, absurd


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_says_what_each_argument_is_even_if_its_text_was_lost(verb):
    """Parameters of click 8.5 forget the help that the oldest Typers gave them before."""
    made = command(verb)
    arguments = [shown for shown in made.params if is_argument(shown)]
    texts = argument_texts(made.callback)
    assert [*texts] == [shown.name for shown in arguments]
    for shown in arguments:
        shown.help = None
    context = made.make_context(verb, ["x"] * 9, resilient_parsing=True)
    told = " ".join(context.get_help().split())
    assert "\\[" not in told
    for text in texts.values():
        assert " ".join(text.split()) in told


def test_the_line_of_usage_has_each_argument_once():
    assert "judge [OPTIONS] FILE.py:FUNCTION…\n" in here("judge", "--help").stdout
    assert "models [OPTIONS] [NAME]\n" in here("models", "--help").stdout
    assert "merge [OPTIONS] FOLDER...\n" in here("merge", "--help").stdout


def test_the_help_shows_every_option_in_its_group_with_its_default():
    shown = here("sweep", "--help", COLUMNS="80").stdout
    flat = " ".join(shown.split())
    for name, option in options().items():
        start = shown.index(f"\n{option.panel}:\n")
        assert shown.find(f"  --{name.replace('_', '-')} ", start) > 0 or option.flag, name
        assert not option.chosen or f"[default: {option.chosen}]" in flat, name
    assert "[default: 128..65536:x2]" in flat
    assert "[default: 0]" in flat
