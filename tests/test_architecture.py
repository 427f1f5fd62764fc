"""The floors: a file imports only from floors below its own. This list is the architecture."""

import ast
import re
import shutil
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile
from pathlib import Path

import pytest

from attnbench.devices.finding import kinds
from tests import planted
from tests.cli.commands import python

ROOT = Path(__file__).parents[1] / "attnbench"

# from the ground up; the rooms of one floor import nothing of one another
FLOORS = (
    ("errors", "metrics", "modes", "units", "version"),
    ("records",),
    ("devices", "statistics", "store"),
    ("attention",),
    ("mechanisms", "analysis"),
    ("peers", "verify", "run"),
    ("catalogue", "fleet"),
    ("measure", "workloads", "gate"),
    ("render",),
    ("api", "claims", "kvbytes"),
    ("cli",),
    ("__init__", "__main__"),
)
GROUND = 2  # floors, which count as one room
ROOMS, FILES_ABOVE, ARROWS = 21, 7, 83  # at most

# which rooms, or single files, may import a heavy library by name
DOORS = {
    "torch": {
        "attention",
        "devices",
        "mechanisms",
        "peers",
        "verify",
        "measure",
        "catalogue/adopted.py",
        "catalogue/claimed.py",
        "catalogue/compiled.py",
        "catalogue/stacked.py",
    },
    "numpy": {"statistics", "analysis", "gate", "render", "measure"},
    "pandas": {"store", "analysis", "render"},
    "matplotlib": {f"render/{name}.py" for name in ("charts", "figures", "panels")},
    "jinja2": {"render/html.py"},
    "rich": {"render/terminal.py", "cli/console.py"},
    "scipy": {"statistics", "analysis"},
    "typer": {"cli"},
    "pynvml": {"devices/nvml.py"},
    "ray": {"fleet/ray.py"},
}

ANALYSING = ("attnbench.analysis", "attnbench.statistics")

# what only `analysis` and `statistics` may do
STATISTICS = {
    *("mean", "median", "std", "var", "cov", "corr", "quantile", "percentile"),
    *("polyfit", "lstsq", "pinv", "hypot"),
}

LONGEST = 60  # lines of a function

FILES = sorted(ROOT.rglob("*.py"))


@cache
def tree(path):
    return ast.parse(path.read_text())


def where(path):
    return path.relative_to(ROOT).as_posix()


def room(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def floor(name):
    for number, rooms in enumerate(FLOORS):
        if name in rooms:
            return number
    return None


@cache
def imports(path):
    """Every module that the file may import at run time, wherever in the file."""
    found, only_types = set(), set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            only_types.update(ast.walk(node))
        if node in only_types:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found.add(module)
            found.update(f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            start = literal_start(node.args[0])
            found.add(f"{start}*" if start.endswith(".") else start)
    return found


def literal_start(text):
    """The text that an expression begins with for sure: `a.b.` of `f"a.b.{name}"`."""
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    constants = takewhile(lambda part: isinstance(part, ast.Constant), parts)
    return "".join(part.value for part in constants)


@cache
def imported(path):
    """The files of this package that the file may import; the package's own name is none."""
    found = set()
    for module in imports(path):
        package, *names = module.split(".")
        if package == "attnbench" and names:
            place = ROOT.joinpath(*names)
            found.update((place.with_suffix(".py"), place / "__init__.py"))
            found.update(place.parent.glob("*.py") if place.name == "*" else ())
    return {file for file in found if file.is_file()} - {path}


def hold(rule):
    """Fail with all that the rule says of any file."""
    found = [f"{where(path)} {wrong}" for path in FILES for wrong in rule(path)]
    assert not found, "\n".join(found)


def test_a_file_imports_only_from_floors_below():
    def climbs(path):
        own = floor(room(path))
        if own is None:
            yield "stands on no floor"
            return
        for module in imports(path):
            top, _, other = module.partition(".")
            other = other.partition(".")[0]
            if not top and module:
                yield f"imports {module}: imports are absolute"
            elif top == "attnbench" and other not in ("", room(path)):
                below = floor(other) is not None and floor(other) < own
                if not below:
                    yield f"(floor {own}) imports {module} (floor {floor(other)})"

    hold(climbs)


@pytest.mark.parametrize(
    ("name", "verbs"), [("claims", {"stored"}), ("kvbytes", {"bytes", "model"})]
)
def test_nothing_but_its_verbs_needs_a_room_apart(name, verbs):
    users = {where(path) for path in FILES for file in imported(path) if room(file) == name}
    above = {user for user in users if not user.startswith(f"{name}/")}
    assert above == {f"cli/{verb}.py" for verb in verbs}


def house(path):
    """The room of a file; those on the ground count as one, and so do those at the top."""
    number = floor(room(path))
    if number is not None and number < GROUND:
        return "ground"
    return "top" if number == len(FLOORS) - 1 else room(path)


def test_the_house_stays_small():
    arrows = {(house(path), house(other)) for path in FILES for other in imported(path)}
    assert len({house(path) for path in FILES}) <= ROOMS
    assert len([path for path in FILES if path.parent == ROOT]) <= FILES_ABOVE
    assert sum(room != other for room, other in arrows) <= ARROWS


def test_no_circle_among_files():
    graph = {where(path): {where(other) for other in imported(path)} for path in FILES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_heavy_libraries_come_through_their_doors():
    def breaks_in(path):
        for module in imports(path):
            doors = DOORS.get(module.split(".")[0])
            if doors is not None and not doors & {room(path), where(path)}:
                yield f"imports {module}"

    hold(breaks_in)


def test_nothing_mutable_at_module_level():
    mutable = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)

    def keeps(path):
        for node in tree(path).body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, mutable):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if getattr(target, "id", "") != "CARD":
                    yield f"line {node.lineno} is mutable"

    hold(keeps)


def test_only_cli_prints_or_exits():
    def speaks(path):
        if room(path) in ("cli", "__main__"):
            return
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
                yield f"line {node.lineno} prints"
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.exit", "sys.argv"):
                yield f"line {node.lineno} uses {ast.unparse(node)}"

    hold(speaks)


def names_a_device(node):
    """Whether an expression holds a kind of device as a literal, as in `w.device == "cpu"`."""
    constants = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)]
    return any(re.match(f"({'|'.join(kinds())})\\b", str(value)) for value in constants)


def test_what_depends_on_the_device_is_asked_of_it():
    """Mechanisms and peers alone, with what they share, may say what runs where."""

    def knows(path):
        if room(path) in ("mechanisms", "attention", "peers", "devices"):
            return
        for node in ast.walk(tree(path)):
            called = isinstance(node, ast.Call) and getattr(node.func, "attr", "")
            asks = isinstance(node, (ast.Compare, ast.MatchValue)) or called in (
                "startswith",
                "get",
            )
            if asks and names_a_device(node):
                yield f"line {node.lineno} knows a device by name"

    hold(knows)


def test_render_only_writes():
    """What works numbers out stays below; classes and constants of these rooms may be named."""

    def computes(path):
        if room(path) != "render":
            return
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith(ANALYSING):
                yield from (a.name for a in node.names if a.name.islower())
            if isinstance(node, ast.Import):
                yield from (a.name for a in node.names if a.name.startswith(ANALYSING))
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                yield from {name} & STATISTICS

    hold(computes)


def test_no_room_is_a_catch_all():
    catch_all = re.compile(r"util|helper|common|^base$|manager")
    assert [where(path) for path in FILES if catch_all.search(path.stem)] == []


def test_no_function_is_long():
    """Mechanisms keep their equations together, and packages what differs of theirs."""

    def runs_on(path):
        if room(path) in ("mechanisms", "peers"):
            return
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= LONGEST:
                yield f"{node.name} has {1 + node.end_lineno - node.lineno} lines"

    hold(runs_on)


def test_torch_stays_unloaded(tmp_path):
    sweep = shutil.copytree("tests/data/small", tmp_path / "sweep")
    code = f"""
import sys
from attnbench.__main__ import main
for arguments in (
    ["--help"],
    ["sweep", "--help"],
    ["report", {str(sweep)!r}],
    ["compare", {str(sweep)!r}, {str(sweep)!r}],
    ["recommend", {str(sweep)!r}, "--length", "512"],
    ["bytes", "tests/data/configurations/kimi-linear-48b.json"],
    ["claims", {str(sweep)!r}],
    ["sweep", "--lengths", "x"],
    ["sweep", "--models", "@decode,linfromer", "--device", "cpu"],
    ["sweep", "--models", "linformer", "--dry-run"],
):
    sys.argv = ["attnbench", *arguments]
    try:
        main()
    except SystemExit:
        pass
    if "torch" in sys.modules:
        sys.exit(f"loaded by {{arguments}}")
"""
    python("-c", code, cwd=ROOT.parent)


def test_every_planted_bug_can_still_be_planted():
    assert not [problem for bug in planted.stored() for problem in bug.problems()]
