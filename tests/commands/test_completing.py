"""What a shell completes."""

import os
import pty
import select
import shutil
import sys
import time
from pathlib import Path

import pytest

from attnbench.commands.completing import joined
from tests.commands.commands import environment, here, python

PLACE = Path(sys.executable).parent
PROGRAM = (
    "import sys, atexit; sys.argv = ['attnbench'];"
    "heavy = {'torch', 'pandas', 'numpy', 'scipy'};"
    "atexit.register(lambda: print('loaded', heavy & set(sys.modules)));"
    "from attnbench.__main__ import main; main()"
)
MODULE = """
class Mean(Base):
    def __init__(self, width, heads): ...

def local(q, k, v): ...
"""


def in_bash(*words, cwd="."):
    """What bash gets for the words of a command line, as it divides them, with the last to come."""
    asked = {"_ATTNBENCH_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words)}
    return here(cwd=cwd, **asked, COMP_CWORD=str(len(words) - 1)).stdout.split()


def test_completion_loads_no_heavy_library():
    """As bash asks, by the protocol that `--install-completion` sets up."""
    for words, word in (
        ("attnbench\nrecom", "recommend"),
        ("attnbench\nsweep\n--case", "--case-timeout"),
        ("attnbench\nsweep\n--models\nfastformer,transformer_", "fastformer,transformer_xl"),
        ("attnbench\njudge\n--dtype\nbfl", "bfloat16"),
    ):
        asked = {"_ATTNBENCH_COMPLETE": "complete_bash", "COMP_WORDS": words}
        done = python("-c", PROGRAM, env=environment(**asked, COMP_CWORD=str(words.count("\n"))))
        assert done.stdout == f"{word}\nloaded set()\n", done.stderr


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("jud", ["judge"]),
        (
            "sweep --models fastformer,trans",
            ["fastformer,transformer", "fastformer,transformer_xl"],
        ),
        ("sweep --models linformer[rank=4,x=1],gated_l", ["linformer[rank=4,x=1],gated_linear"]),
        ("sweep --models stack(2*mamba2+grou", ["stack(2*mamba2+grouped_query"]),
        ("sweep kimi", ["kimi_delta"]),
        ("sweep --mode training,inf", ["training,inference"]),
        ("sweep --mode training,t", []),
        ("sweep --level a", ["attention"]),
        ("sweep --preset q", ["qwen-next"]),
        ("sweep --device c", ["cpu", "cuda"]),
        ("sweep --on s", ["slurm"]),
        ("model c.json --dtype fp32,fp1", ["fp32,fp16"]),
        ("explain fnet reten", ["retention"]),
        ("explain --mode dec", ["decode"]),
        ("judge k.py --as kimi", ["kimi_delta"]),
        ("check --level c", ["core"]),
        ("check --formats junit,m", ["junit,markdown"]),
        ("report x --formats png,s", ["png,svg"]),
        ("models fast", ["fastformer"]),
        ("models --verify --st", ["--stress"]),
        ("explain fnet local --qu", []),
        ("doctor --device a", ["auto"]),
    ],
)
def test_values_are_completed(line, offered):
    separated = line.replace("[rank=4,x=1]", "[rank\n=\n4,x\n=\n1]").replace(" ", "\n")
    whole = line.rpartition(" ")[2].rpartition("=")[0]
    wanted = [value.removeprefix(f"{whole}=" if whole else "") for value in offered]
    assert in_bash("attnbench", *separated.split("\n")) == wanted


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        # bash divides words at these letters, and replaces the last part alone, with its @
        (("--models", "transformer", ":", "ea"), ["eager"]),
        (("--models", "fnet,retention", ":"), ["eager", "chunked", "fla", "compiled"]),
        (("--models", "@", "mod"), ["@modern"]),
        (("--models", "fnet,", "@", "mod"), ["@modern"]),
        (("--models", "=", "fastf"), ["fastformer"]),
        (("--models", "=@", "mod"), ["@modern"]),
        (("--models", "=", "fnet,retention", ":", "ch"), ["chunked"]),
        (("--models", "mine.py", ":"), ["Mean", "local"]),
        (("--models", "mine.py", ":", "Mean,mine.py", ":", "lo"), ["local"]),
        # where a user has taken the colon from COMP_WORDBREAKS
        (("--models", "transformer:ea"), ["transformer:eager"]),
    ],
)
def test_what_bash_divides_is_completed_as_one(words, offered, tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    assert in_bash("attnbench", "sweep", *words, cwd=tmp_path) == offered


def test_words_of_bash_are_joined_up_to_the_cursor():
    assert joined(["a", "b", ":", "c", "d"], 3) == (["a", "b:c"], 1, "b:")
    assert joined(["a", "b"], 2) == (["a", "b", ""], 2, "")
    assert joined(["a", "--x", "=", "b"], 3) == (["a", "--x=b"], 1, "")


@pytest.mark.parametrize(
    ("shell", "more", "printed"),
    [
        ("zsh", {}, "_arguments '*: :((\"fnet,transformer_xl\"))'"),
        ("fish", {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}, "fnet,transformer_xl"),
    ],
)
def test_other_shells_get_whole_values(shell, more, printed):
    asked = {"_ATTNBENCH_COMPLETE": f"complete_{shell}", **more}
    line = "attnbench sweep --models fnet,transformer_"
    assert here(**asked, _TYPER_COMPLETE_ARGS=line).stdout.strip() == printed


def typed(terminal, text, until, limit_s=60.0):
    """What a terminal shows after a text was typed, up to some words."""
    os.write(terminal, text.encode())
    shown, end = "", time.monotonic() + limit_s
    while until not in shown and time.monotonic() < end:
        ready, _, _ = select.select([terminal], [], [], 0.1)
        shown += os.read(terminal, 1 << 16).decode() if ready else ""
    assert until in shown, shown
    return shown


@pytest.mark.long
@pytest.mark.skipif(
    shutil.which("bash") is None or not (PLACE / "attnbench").exists(),
    reason="there is no bash, or the command is not installed",
)
def test_bash_itself_completes():
    process, terminal = pty.fork()
    if process == 0:
        path = f"{PLACE}{os.pathsep}{os.environ['PATH']}"
        env = environment(TERM="dumb", PS1="> ", PATH=path)
        os.execvpe("bash", ["bash", "--norc", "-i"], env)
    typed(terminal, 'eval "$(_ATTNBENCH_COMPLETE=source_bash attnbench)"; echo re\\ady\n', "ready")
    for words, whole in (
        ("--models transformer:ea", "--models transformer:eager"),
        ("--models fnet,@mod", "--models fnet,@modern"),
        ("--models=@surv", "--models=@survey"),
        ("--models fnet,linear", "--models fnet,linear_transformer"),
    ):
        # a terminal shows changes alone, so the line is printed: echo is written before it
        shown = typed(terminal, f"attnbench sweep {words}\t; echo en\\d\x01echo \n", "end")
        assert f"attnbench sweep {whole}" in shown.splitlines()
    os.write(terminal, b"exit\n")
    os.waitpid(process, 0)
