"""Lines are a budget: what is counted here may only shrink towards its goal.

Whoever makes something smaller lowers its number; whoever needs more pays for it elsewhere.
"""

import ast
from collections import Counter
from pathlib import Path

import pytest
from typer.main import get_command

from attnbench.cli.verbs import application

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "attnbench"
SLACK = 60  # lines by which a room may stay below its number

# lines of each room: now, and the goal; each mechanism and each form of another package is a file
# of its own, and they are not counted
LINES = {
    "cli": (2_210, 1_000),
    "api": (480, 170),
    "gate": (1_350, 1_200),
    "claims": (350, 350),
    "render": (3_090, 1_700),
    "render/web": (440, 440),
    "workloads": (1_010, 650),
    "kvbytes": (820, 460),
    "measure": (2_030, 910),
    "analysis": (1_800, 1_240),
    "fleet": (490, 440),
    "catalogue": (790, 450),
    "run": (1_740, 940),
    "attention": (2_580, 2_000),
    "verify": (1_030, 450),
    "devices": (1_640, 1_300),
    "statistics": (770, 650),
    "store": (750, 430),
    "records": (990, 500),
    "modes.py": (90, 90),
    "units.py": (180, 140),
    "metrics.py": (190, 170),
    "errors.py": (110, 90),
    "__init__.py": (25, 25),
    "__main__.py": (19, 19),
    "version.py": (3, 3),
}
TESTS = (28_930, 22_000)
ALL = (24_840, 17_500)  # of the package
CLASSES = (12, 12)  # in `run`
OPTIONS = (90, 90)  # of all verbs, with --help
LONGEST, LARGEST = 60, 350  # lines of a function, and of a file
# of a verb and all files that exist for it alone
VERBS = {"claims": 350, "explain": 250, "compare": 200, "recommend": 130}
ALONE = {
    "claims": ("claims/claim.py", "claims/judging.py"),
    "explain": ("analysis/explain.py", "render/explain.py", "api/explaining.py"),
    "compare": ("analysis/compare.py", "render/comparison.py"),
    "recommend": ("analysis/recommend.py", "render/recommendation.py"),
}

# those that are still longer
FUNCTIONS = {}
FILES: dict[str, int] = {}


def lines(path):
    return len(path.read_text(encoding="utf-8").splitlines())


def room(path):
    """The room of a file; a file above the rooms is its own."""
    first, *rest = path.relative_to(PACKAGE).parts
    return "render/web" if rest[:1] == ["web"] else first


def counted():
    """The files of the package that count."""
    kinds = (".py", ".js", ".css", ".html", ".json")
    files = (path for path in PACKAGE.rglob("*") if path.suffix in kinds)
    return [path for path in files if room(path) not in ("mechanisms", "peers", "published")]


@pytest.fixture(scope="module")
def rooms():
    found = Counter()
    for path in counted():
        found[room(path)] += lines(path)
    return found


def test_a_room_only_shrinks(rooms):
    assert rooms.keys() == LINES.keys()
    assert not {name: (n, LINES[name]) for name, n in rooms.items() if n > LINES[name][0]}
    assert rooms.total() <= ALL[0]


def test_what_a_room_gained_is_written_down(rooms):
    """The number of a room that shrank is lowered, so that it stays small."""
    assert not {name: n for name, n in rooms.items() if n < LINES[name][0] - SLACK}


def test_goals_are_goals():
    every = (*LINES.values(), TESTS, ALL, CLASSES, OPTIONS)
    assert all(now >= goal for now, goal in every), "a goal that is reached becomes the limit"
    assert sum(goal for _, goal in LINES.values()) <= ALL[1]


def test_tests_only_shrink():
    assert sum(map(lines, (ROOT / "tests").rglob("*.py"))) <= TESTS[0]


def test_no_function_and_no_file_is_long():
    longer, larger = {}, {}
    for path in counted():
        where = path.relative_to(PACKAGE).as_posix()
        if lines(path) > LARGEST and path.suffix == ".py":
            larger[where] = lines(path)
        for node in ast.walk(ast.parse(path.read_text())) if path.suffix == ".py" else ():
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= LONGEST:
                longer[f"{where}:{node.name}"] = 1 + node.end_lineno - node.lineno
    assert not {name: n for name, n in longer.items() if n > FUNCTIONS.get(name, LONGEST)}
    assert not {name: n for name, n in larger.items() if n > FILES.get(name, LARGEST)}
    assert longer.keys() == FUNCTIONS.keys(), "what is no longer long is taken off the list"
    assert larger.keys() == FILES.keys()


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_stays_small(verb):
    file = PACKAGE / "cli" / ("explain.py" if verb == "explain" else "stored.py")
    (own,) = [n for n in ast.parse(file.read_text()).body if getattr(n, "name", "") == verb]
    others = sum(lines(PACKAGE / file) for file in ALONE[verb])
    assert own.end_lineno - own.lineno + 1 + others <= VERBS[verb]


def test_few_classes_run_a_sweep():
    trees = (ast.parse(path.read_text()) for path in (PACKAGE / "run").rglob("*.py"))
    classes = sum(isinstance(node, ast.ClassDef) for tree in trees for node in ast.walk(tree))
    assert classes <= CLASSES[0]


def test_few_options():
    verbs = get_command(application()).commands.values()
    options = sum(
        1 + sum(parameter.param_type_name == "option" for parameter in verb.params)
        for verb in verbs
    )
    assert options <= OPTIONS[0]
