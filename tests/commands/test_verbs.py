"""Verbs are data: which module is loaded when, and which options each verb shows and takes."""

import ast
import inspect
from pathlib import Path

import pytest

from attnbench.commands.explain import command as explain
from attnbench.commands.judge import command as judge
from attnbench.commands.model import command as model
from attnbench.commands.verbs import VERBS, command
from attnbench.running.request.options import flag, options
from tests.commands.commands import here, python, refused

ROOT = Path(__file__).parents[2] / "attnbench"
# loaded by no help and no completion
HEAVY = {"torch", "pandas", "numpy", "scipy", "matplotlib", "jinja2", "rich", "psutil", "ray"}
# files that import in functions for another reason: before signals are handled, where pytest loads
# them in every run, for one engine in two, and what loads what a name names
APART = {
    *("entry.py", "program.py", "verbs.py", "check/pytest_plugin.py"),
    "sweeping/on_cluster.py",
}
SWEEPING = {
    "sweep": (options(), {}),
    "model": (model.TAKEN, model.SHOWN),
    "explain": (explain.TAKEN, explain.SHOWN),
    "judge": (judge.TAKEN, judge.USUAL),
}

LOADED = """
import sys
sys.argv = ["attnbench", *{words!r}]
from attnbench.__main__ import main
try:
    main()
except SystemExit:
    pass
print(sorted(set({modules!r}) & set(sys.modules)))
"""


def loaded(*words, modules):
    """Which of some modules a command has loaded at its end."""
    done = python("-c", LOADED.format(words=words, modules=sorted(modules)))
    return set(ast.literal_eval(done.stdout.splitlines()[-1]))


def test_the_list_of_verbs_loads_none_of_them():
    modules = {verb.module for verb in VERBS.values()}
    assert loaded("--help", modules={*modules, *HEAVY, "msgspec", "attnbench.records"}) == set()


def test_a_verb_loads_its_module_and_nothing_heavy_for_its_help():
    modules = {verb.module for verb in VERBS.values()}
    assert loaded("claims", "--help", modules={*modules, *HEAVY} - {"rich"}) == {
        "attnbench.commands.claims.command"
    }
    assert loaded("model", "--help", modules=HEAVY - {"rich"}) == set()


def where(path):
    return path.relative_to(ROOT / "commands").as_posix()


def outer(path):
    """The modules that a file imports as it is loaded, and the packages above them."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update({node.module, *(f"{node.module}.{each.name}" for each in node.names)})
    return found


def file_of(module):
    place = ROOT.joinpath(*module.split(".")[1:])
    return next((f for f in (place.with_suffix(".py"), place / "__init__.py") if f.is_file()), None)


def home(name):
    """The module from which a wing's door has a name, at once or when it is first asked for."""
    package, _, last = name.rpartition(".")
    door = file_of(package)
    for node in ast.walk(ast.parse(door.read_text())) if door else ():
        if isinstance(node, ast.ImportFrom) and last in (each.name for each in node.names):
            return node.module
    return None


def is_heavy(module, seen):
    """Whether loading a module of the package, or a name of a door, loads a heavy library."""
    if module.partition(".")[0] in HEAVY:
        return True
    if module.partition(".")[0] != "attnbench" or module in seen or module == "attnbench":
        return False
    seen.add(module)
    file = file_of(module)
    package = module.rpartition(".")[0]
    if file is None:
        return (offered := home(module)) is not None and is_heavy(offered, seen)
    return any(is_heavy(other, seen) for other in (*outer(file), package))


def test_only_heavy_modules_are_imported_within_functions():
    light = []
    for path in sorted((ROOT / "commands").rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef) or where(path) in APART:
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom) and node.module.startswith("attnbench"):
                    names = [f"{node.module}.{each.name}" for each in node.names]
                    if not any(is_heavy(name, set()) for name in (node.module, *names)):
                        light.append(f"{where(path)}: {node.module}")
    assert light == []


@pytest.mark.parametrize("name", VERBS)
def test_the_summary_is_the_first_line_of_the_help(name):
    first = inspect.getdoc(command(name).callback).partition("\n")[0]
    assert VERBS[name].summary == first


@pytest.mark.parametrize("name", SWEEPING)
def test_a_verb_shows_each_of_its_options_in_its_group_with_its_default(name):
    taken, defaults = SWEEPING[name]
    shown = here(name, "--help", COLUMNS="80").stdout
    flat = " ".join(shown.split())
    for each in taken:
        option = options()[each]
        start = shown.index(f"\n{option.panel}:\n")
        assert shown.find(f"  {flag(each)} ", start) > 0, each
        usual = defaults.get(each, option.chosen)
        assert not usual or f"[default: {usual}]" in flat, each
    for each in {*options()} - {*taken}:
        assert f"  {flag(each)} " not in shown, each


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["explain", "fnet", "local", "--length", "16", "--quick"], "explain takes no --quick"),
        (["judge", "k.py:f", "--as", "fnet", "--layers", "2"], "judge takes no --layers"),
        (["model", "c.json", "--models", "x"], "no --models: what it measures follows from the"),
        (["report", "x", "--lengths", "4"], "report takes no --lengths; see attnbench report"),
        (["models", "--models", "x"], "models takes no --models"),
        (["merge", "a", "b"], "--out"),
        (["explain", "fnet", "local", "--lenght", "16"], "--length"),
        (["swep"], "sweep"),
        (["sweep", "--lengths"], "requires an argument; see attnbench sweep --help"),
        (["judge", "k.py:f", "--as"], "requires an argument; see attnbench judge --help"),
        (["sweep", "--lengths", "128-512"], "--lengths 128-512: write a range as 128..65536:x2"),
        (["sweep", "--rounds", "two"], "--rounds 'two' is not a whole number"),
        (["sweep", "--budget", "0"], "--budget '0' is not a time above 0"),
        (["doctor", "cpu"], "doctor takes options alone: 'cpu' is too much"),
    ],
)
def test_what_a_verb_does_not_take_is_said_with_its_name(words, said):
    assert said in refused(*words)


def test_a_file_without_its_ending_is_named(tmp_path):
    (tmp_path / "mine.py").write_text("")
    said = refused("sweep", "mine", cwd=tmp_path)
    assert said == "attnbench: unknown mechanism 'mine'; the file is mine.py"


def test_options_stand_in_any_order_among_arguments(tmp_path):
    words = ("--length", "16", "fnet", "--mode", "training", "lokal", "--budget", "1m")
    assert "did you mean local" in refused("explain", *words)
