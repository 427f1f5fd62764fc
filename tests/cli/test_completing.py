"""Names that a shell completes, and what the help shows of each verb."""

import pytest
from typer.main import get_command

from attnbench.cli.options import argument_texts, is_argument
from attnbench.cli.verbs import application
from attnbench.workloads.options import options
from tests.cli.commands import environment, here, python


def test_a_shell_completes_names_of_verbs_and_options_without_a_heavy_library():
    """As bash asks, by the protocol that `--install-completion` sets up."""
    code = (
        "import sys, atexit; sys.argv = ['attnbench'];"
        "atexit.register(lambda: print({'torch', 'pandas', 'numpy', 'rich'} & set(sys.modules)));"
        "from attnbench.__main__ import main; main()"
    )
    for line, word in (
        ("attnbench\nrecom", "recommend"),
        ("attnbench\nsweep\n--case", "--case-timeout"),
    ):
        asked = {"_ATTNBENCH_COMPLETE": "complete_bash", "COMP_WORDS": line}
        done = python("-c", code, env=environment(**asked, COMP_CWORD=str(line.count("\n"))))
        assert done.stdout == f"{word}\nset()\n", done.stderr


@pytest.mark.parametrize("verb", [verb.name for verb in application().registered_commands])
def test_the_help_has_words_for_values_and_no_types_or_bounds(verb):
    shown = here(verb, "--help").stdout
    for absurd in ("<str>", "<int", "<path>", "<float", "<=x", "TEXT", "INTEGER", "PATH", "{"):
        assert absurd not in shown, absurd


@pytest.mark.parametrize("verb", [verb.name for verb in application().registered_commands])
def test_the_help_says_what_each_argument_is_even_if_its_text_was_lost(verb):
    """Parameters of click 8.5 forget the help that the oldest Typers gave them before."""
    command = get_command(application()).commands[verb]
    arguments = [shown for shown in command.params if is_argument(shown)]
    texts = argument_texts(command.callback)
    assert [*texts] == [shown.name for shown in arguments]
    for shown in arguments:
        shown.help = None
    context = command.make_context(verb, ["x"] * 9, resilient_parsing=True)
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
