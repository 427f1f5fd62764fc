"""The wings: a file imports only from wings below its own. This list is the architecture."""

import ast
import re
import shutil
import tomllib
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile
from pathlib import Path

import pytest

from attnbench.devices.finding import kinds
from tests import planted
from tests.commands.commands import python

ROOT = Path(__file__).parents[1] / "attnbench"

# from the ground up: a wing imports only from wings before it
WINGS = (
    "records",
    "devices",
    "attention",
    "mechanisms",
    "analysis",
    "measuring",
    "running",
    "report",
    "commands",
)
# rooms that were, and are no place to look for anything
FORMER = {
    *("api", "cli", "render", "run", "measure", "gate", "verify", "workloads", "catalogue"),
    *("store", "fleet", "kvbytes", "peers", "modes", "units", "metrics"),
}
GROUND = ("errors", "version")  # files that every wing may import
ROOF = ("__init__", "__main__")
ARROWS = 26  # between wings, at most
CROSSING = 208  # names that cross from one wing to another beside doors, at most

DOOR = 15  # names in a wing's door, at most
DOORS_WITH_A_LIST = 3  # wings whose door says what it offers, at least

SHARED = "sweeping"  # the folder of `commands` that belongs to no verb: verbs may import it
# wings whose folders are no floors of them, as each knows what is in them
WHOLE = {"attention", "devices", "mechanisms"}

DRAWING = ("check", "compare", "judge")  # verbs whose files work with arrays of numbers

# which wings, folders or single files may import a heavy library by name
DOORS = {
    "torch": {
        "attention",
        "devices",
        "mechanisms",
        "measuring",
        "commands/judge/worker.py",
    },
    "numpy": {"analysis", "report", "measuring", *(f"commands/{name}" for name in DRAWING)},
    "pandas": {"records/storage", "analysis", "report", "commands/compare", "commands/recommend"},
    "matplotlib": {
        *("report/charts.py", "report/figures.py", "report/maps.py", "report/page.py"),
        "commands/model/figure.py",
    },
    "jinja2": {"report/html.py"},
    "rich": {"report/terminal.py", "commands/console.py"},
    "scipy": {"analysis", "commands/check"},
    "typer": {"commands"},
    "pynvml": {"devices/nvml.py"},
    "ray": {"commands/sweeping/cluster/ray.py"},
}

ANALYSING = ("attnbench.analysis",)
WRITING = {"page", "table", "layer_table", "figure"}  # files of a verb

# what only `analysis` may do
STATISTICS = {
    *("mean", "median", "std", "var", "cov", "corr", "quantile", "percentile"),
    *("polyfit", "lstsq", "pinv", "hypot"),
}

# files without tests at the path that mirrors theirs, as they decide nothing; mechanisms are tested
# together, each by what its card says
UNMIRRORED = {
    *("__main__.py", "version.py", "records/bounds.py", "records/card.py", "commands/entry.py"),
    *("commands/sweep/merge_command.py", "commands/sweeping/cluster/engine.py"),
    "commands/check/starting.py",
}

IN_EACH = {"Worker"}  # what a server of processes looks for, in each module that has one
LONGEST = 60  # lines of a function

FILES = sorted(ROOT.rglob("*.py"))


@cache
def tree(path):
    return ast.parse(path.read_text())


def where(path):
    return path.relative_to(ROOT).as_posix()


def room(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def height(name):
    """The number of a wing, from the ground up; no number if nothing is known of it."""
    order = (GROUND, *((wing,) for wing in WINGS), ROOF)
    return next((number for number, names in enumerate(order) if name in names), None)


@cache
def imports(path):
    """Every module that the file imports, wherever in the file, also for its types alone."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            if not all(is_module(module, alias.name) for alias in node.names):
                found.add(module)
            found.update(f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            start = literal_start(node.args[0])
            found.add(f"{start}*" if start.endswith(".") else start)
    return found


def is_module(package, name):
    """Whether a name of one of this package's folders is a module, or a folder of modules."""
    place = ROOT.parent.joinpath(*package.split("."), name)
    return place.with_suffix(".py").is_file() or place.is_dir()


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


def test_a_file_imports_only_from_wings_below():
    def climbs(path):
        own = height(room(path))
        if own is None:
            yield "stands in no wing"
            return
        for module in imports(path):
            top, _, other = module.partition(".")
            other = other.partition(".")[0]
            if not top and module:
                yield f"imports {module}: imports are absolute"
            elif top == "attnbench" and other not in ("", room(path)):
                below = height(other) is not None and height(other) < own
                if not below and not (own == 0 and other in GROUND):
                    yield f"imports {module}, which is not below"

    hold(climbs)


def test_the_house_has_nine_wings_and_few_arrows_between_them():
    assert {path.name for path in ROOT.iterdir() if path.is_dir()} - {"__pycache__"} == {*WINGS}
    arrows = {(room(path), room(other)) for path in FILES for other in imported(path)}
    between = sorted((a, b) for a, b in arrows if a != b and {a, b} <= {*WINGS})
    assert len(between) <= ARROWS, between


def crossing():
    """For each wing, the names that other wings import from it, but those of its `__init__`."""
    names = {wing: set() for wing in WINGS}
    for path in FILES:
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            package, _, inner = node.module.partition(".")
            wing = inner.partition(".")[0]
            if package == "attnbench" and wing in names and wing != room(path):
                module = inner.partition(".")[2]
                names[wing].update(f"{module}.{each.name}" for each in node.names if module)
    return names


def test_what_crosses_a_door_is_offered_there_or_still_listed():
    """A wing offers names in its `__init__`; `doors.toml` has the others, and may only shrink."""
    listed = tomllib.loads(Path(__file__).with_name("doors.toml").read_text())
    crossed = {wing: sorted(names) for wing, names in crossing().items()}
    assert crossed == {wing: sorted(listed.get(wing, [])) for wing in WINGS}
    assert sum(map(len, crossed.values())) <= CROSSING


def offered(wing):
    """The names and modules in the `__all__` of a wing's door; None where it has none."""
    for node in tree(ROOT / wing / "__init__.py").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return None


def test_a_door_offers_few_names_and_others_take_no_other():
    """Of each wing whose door says what it offers; a module counts as one name."""

    def asks_for_more(path):
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            package, _, wing = node.module.partition(".")
            if package == "attnbench" and wing in doors and wing != room(path):
                yield from (a.name for a in node.names if a.name not in doors[wing])

    doors = {wing: offered(wing) for wing in WINGS if offered(wing) is not None}
    assert len(doors) >= DOORS_WITH_A_LIST
    assert {wing: len(names) for wing, names in doors.items() if len(names) > DOOR} == {}
    hold(asks_for_more)


def test_what_a_door_offers_has_not_the_name_of_a_file():
    """Python sets a folder's name to the module of that name once something imports it."""

    def hides(path):
        if path.name != "__init__.py":
            return
        for node in tree(path).body:
            if isinstance(node, ast.ImportFrom):
                package = ".".join(("attnbench", *path.parent.relative_to(ROOT).parts))
                names = (alias.asname or alias.name for alias in node.names)
                taken = (name for name in names if is_module(package, name))
                yield from (f"offers {name}" for name in taken if node.module != package)

    hold(hides)


def slice_of(path):
    """The folder of `commands` that a file is in, which belongs to one verb; empty for others."""
    parts = path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "commands" and len(parts) > 2 else ""


def test_what_belongs_to_one_verb_imports_nothing_of_another():
    def borrows(path):
        for other in imported(path):
            if slice_of(path) and slice_of(other) not in ("", SHARED, slice_of(path)):
                yield f"imports {where(other)}"

    hold(borrows)


def test_a_class_has_one_home():
    """Not those of mechanisms, of which each file has its own `Config` and forms."""
    homes = defaultdict(set)
    for path in FILES:
        if room(path) == "mechanisms":
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and node.name not in IN_EACH:
                homes[node.name].add(where(path))
    assert not {name: files for name, files in homes.items() if len(files) > 1}


def test_no_circle_among_files():
    graph = {where(path): {where(other) for other in imported(path)} for path in FILES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def folder_of(path):
    """The folder of a file; for wings in `WHOLE` the wing."""
    parts = path.relative_to(ROOT).parts
    return parts[0] if parts[0] in WHOLE else "/".join(parts[:-1])


def test_no_circle_among_folders():
    """Files on the ground and the roof belong to no folder."""
    graph = defaultdict(set)
    for path in FILES:
        graph[folder_of(path)].update(folder_of(other) for other in imported(path))
    graph = {name: others - {name, ""} for name, others in graph.items() if name}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_heavy_libraries_come_through_their_doors():
    def breaks_in(path):
        for module in imports(path):
            doors = DOORS.get(module.split(".")[0])
            places = {where(path), *(folder.as_posix() for folder in Path(where(path)).parents)}
            if doors is not None and not doors & places:
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


def test_only_commands_print_or_exit():
    def speaks(path):
        if room(path) in ("commands", "__main__"):
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
        if room(path) in ("mechanisms", "attention", "devices"):
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


def test_reports_only_write():
    """What works numbers out stays below; classes and constants of that wing may be named."""

    def computes(path):
        if room(path) != "report" and not (slice_of(path) and path.stem in WRITING):
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


def test_what_texts_name_of_the_house_exists():
    """A dotted name in backticks that begins with a wing is a file of it, or stands in one."""

    def leads_nowhere(path):
        for name in re.findall(r"`([a-z_]+(?:\.\w+)+)`", path.read_text()):
            wing, *inner = name.split(".")
            if wing in FORMER or (wing in WINGS and not leads(ROOT / wing, inner)):
                yield f"names {name}"

    hold(leads_nowhere)


def leads(place, names):
    """Whether names lead from a folder to a folder, a file, or a name in a file."""
    for name in names:
        if place.is_file():
            return re.search(rf"\b{name}\b", place.read_text()) is not None
        inner = place / name
        place = inner if inner.is_dir() else inner.with_suffix(".py")
        if not place.exists():
            return False
    return True


def test_no_room_is_a_catch_all():
    catch_all = re.compile(r"util|helper|common|^base$|manager")
    assert [where(path) for path in FILES if catch_all.search(path.stem)] == []


def test_no_function_is_long():
    """Mechanisms keep their equations together, and packages what differs of theirs."""

    def runs_on(path):
        if room(path) == "mechanisms":
            return
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= LONGEST:
                yield f"{node.name} has {1 + node.end_lineno - node.lineno} lines"

    hold(runs_on)


def test_the_tests_of_a_file_stand_at_the_path_that_mirrors_its_own():
    files = {
        path.relative_to(ROOT)
        for path in FILES
        if path.name != "__init__.py" and path.parent != ROOT / "mechanisms"
    }
    tests = Path(__file__).parent
    alone = {
        path.as_posix()
        for path in files
        if not (tests / path.with_name(f"test_{path.name}")).is_file()
    }
    assert alone == UNMIRRORED


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
