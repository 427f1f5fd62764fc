"""Completion as a shell asks for it, by the protocol that `--install-completion` sets up."""

import io
import os
from contextlib import redirect_stdout
from unittest.mock import patch

import pytest

from attnbench.catalogue.registry import names
from attnbench.cli.main import run
from attnbench.cli.verbs import application
from attnbench.workloads.options import options
from attnbench.workloads.presets import GROUPS
from tests.cli.commands import environment, here, python


def answers(*words):
    """What bash is answered for these words of a line, the last of them incomplete."""
    asked = environment(
        _ATTNBENCH_COMPLETE="complete_bash",
        COMP_WORDS="\n".join(("attnbench", *words)),
        COMP_CWORD=str(len(words)),
    )
    with (
        patch.dict(os.environ, asked, clear=True),
        redirect_stdout(io.StringIO()) as out,
        pytest.raises(SystemExit),
    ):
        run()
    return out.getvalue().split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("sweep", "--models", ""), [*names(), *GROUPS]),
        (("sweep", "--models", "fastformer,@fi"), ["fastformer,@fig2"]),
        (("sweep", "--mode", ""), ["training", "inference", "decode", "both"]),
        (("sweep", "--dtype", "fp32,b"), ["fp32,bfloat16", "fp32,bf16"]),
        (("report", "--formats", "png,p"), ["png,png", "png,pdf", "png,pyperf"]),
        (("sweep", "--on", ""), ["slurm", "ray"]),
        (("sweep", "--case"), ["--case-timeout"]),
        (("models", "fastf"), ["fastformer"]),
        (("mode",), ["models"]),
    ],
)
def test_words_are_completed(words, expected):
    assert answers(*words) == expected


def test_completion_loads_no_heavy_library():
    line = "attnbench\nsweep\n--models\nlinf"
    code = (
        "import sys, atexit; sys.argv = ['attnbench'];"
        "atexit.register(lambda: print({'torch', 'pandas', 'numpy', 'rich'} & set(sys.modules)));"
        "from attnbench.__main__ import main; main()"
    )
    asked = {"_ATTNBENCH_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": "3"}
    done = python("-c", code, env=environment(**asked))
    assert done.stdout == "linformer\nset()\n", done.stderr


@pytest.mark.parametrize("verb", [verb.name for verb in application().registered_commands])
def test_the_help_has_words_for_values_and_no_types_or_bounds(verb):
    shown = here(verb, "--help").stdout
    for absurd in ("<str>", "<int", "<path>", "<float", "<=x", "TEXT", "INTEGER", "PATH", "{"):
        assert absurd not in shown, absurd


def test_the_help_shows_every_option_in_its_group_with_its_default():
    shown = here("sweep", "--help", COLUMNS="80").stdout
    flat = " ".join(shown.split())
    for name, option in options().items():
        start = shown.index(f"\n{option.panel}:\n")
        assert shown.find(f"  --{name.replace('_', '-')} ", start) > 0 or option.flag, name
        assert not option.chosen or f"[default: {option.chosen}]" in flat, name
    assert "[default: 128..65536:x2]" in flat
    assert "[default: 0]" in flat
