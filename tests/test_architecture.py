"""The floors: a file imports only from floors below its own. This list is the architecture."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from attnbench.device import kinds

ROOT = Path(__file__).parents[1] / "attnbench"

FLOORS = (
    ("errors", "records", "metrics", "units"),
    (
        "contract",
        "primitives",
        "caches",
        "recurrence",
        "flex",
        "kernels",
        "device",
        "store",
        "analysis",
    ),
    ("mechanisms", "adopted", "compiled", "run"),
    ("peers",),
    ("registry", "model", "verify", "claims", "fleet"),
    ("gate",),
    ("measure", "workloads", "render"),
    ("api",),
    ("cli",),
)

# which rooms, or single files, may import a heavy library by name
DOORS = {
    "torch": {
        "contract",
        "primitives",
        "flex",
        "kernels",
        "recurrence",
        "caches",
        "mechanisms",
        "peers",
        "adopted",
        "compiled",
        "model",
        "verify",
        "measure",
    },
    "numpy": {"store", "analysis", "claims", "gate", "render"},
    "pandas": {"store", "analysis", "claims", "render"},
    "matplotlib": {f"render/{name}.py" for name in ("figures", "overlays", "panels", "roofline")},
    "jinja2": {"render/html.py"},
    "markupsafe": {"render/html.py"},
    "rich": {"render/terminal.py", "cli/console.py"},
    "typer": {"cli"},
    "pynvml": {"measure/nvml.py"},
    "ray": {"fleet/ray.py"},
    "triton": {"kernels"},
}

# what only `analysis` may do
STATISTICS = {
    *("mean", "median", "std", "var", "cov", "corr", "quantile", "percentile"),
    *("polyfit", "lstsq", "pinv", "hypot"),
}

FILES = sorted(ROOT.rglob("*.py"))


def room(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def floor(name):
    for number, rooms in enumerate(FLOORS):
        if name in rooms:
            return number
    return None


def imports(path):
    """Every module that the file imports by name, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module
            if node.module in ("attnbench", f"attnbench.{room(path)}"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def typing_only(path):
    """Modules imported under TYPE_CHECKING: names for a reader, no import at run time."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            for inner in ast.walk(node):
                if isinstance(inner, ast.ImportFrom):
                    found.add(inner.module)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_imports_only_from_floors_below(path):
    own = floor(room(path))
    if own is None:
        assert path.name in ("__init__.py", "__main__.py"), f"{path.name} stands on no floor"
        return
    for module in set(imports(path)) - typing_only(path):
        if not module.startswith("attnbench."):
            continue
        other = module.split(".")[1]
        if other in ("__version__", room(path)):
            continue
        assert floor(other) is not None, f"{module} stands on no floor"
        assert floor(other) < own, f"{path.name} (floor {own}) imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_heavy_libraries_come_through_their_doors(path):
    where = path.relative_to(ROOT).as_posix()
    for module in set(imports(path)) - typing_only(path):
        doors = DOORS.get(module.split(".")[0])
        if doors is not None:
            assert room(path) in doors or where in doors, f"{where} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_mutable_at_module_level(path):
    for node in ast.parse(path.read_text()).body:
        value = getattr(node, "value", None)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if getattr(target, "id", "") == "CARD":
                continue
            kinds = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
            assert not isinstance(value, kinds), f"{path}:{node.lineno} is mutable"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_only_cli_prints_or_exits(path):
    if room(path) in ("cli", "__main__"):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            assert getattr(node.func, "id", "") != "print", f"{path}:{node.lineno} prints"
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "sys":
            assert node.attr not in ("exit", "argv"), f"{path}:{node.lineno} uses sys.{node.attr}"


def names_a_device(node):
    """Whether an expression holds a kind of device as a literal, as in `w.device == "cpu"`."""
    constants = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)]
    return any(re.match(f"({'|'.join(kinds())})\\b", str(value)) for value in constants)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_depends_on_the_device_is_asked_of_it(path):
    """Mechanisms and peers alone, with what they share, may say what runs where."""
    if room(path) in ("mechanisms", "primitives", "flex", "peers") or path.parent.name == "devices":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        called = isinstance(node, ast.Call) and getattr(node.func, "attr", "")
        if isinstance(node, (ast.Compare, ast.MatchValue)) or called in ("startswith", "get"):
            assert not names_a_device(node), f"{path}:{node.lineno} knows a device by name"


def functions(module):
    """The names of the functions that a module defines at its top level."""
    body = ast.parse((ROOT.parent / f"{module.replace('.', '/')}.py").read_text()).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}


def computing(source):
    """What in the text of a module of `render` works numbers out instead of writing them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            if node.module == "attnbench.analysis":
                yield from names
            elif re.fullmatch(r"attnbench\.analysis\.\w+", node.module):
                yield from names & functions(node.module)
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("attnbench.analysis"))
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            yield from {name} & STATISTICS


def test_render_only_writes():
    found = {path.name: [*computing(path.read_text())] for path in (ROOT / "render").glob("*.py")}
    assert not {name: names for name, names in found.items() if names}


@pytest.mark.parametrize(
    "source",
    [
        "from attnbench.analysis.summary import Frame, summary",
        "from attnbench.analysis import scaling",
        "import attnbench.analysis.summary",
        "frame['time_s'].median()",
        "np.hypot(a, b)",
    ],
)
def test_what_computes_is_found(source):
    assert [*computing(source)]


def test_no_room_is_a_catch_all():
    for path in FILES:
        assert not re.search(r"util|helper|common|^base$|manager", path.stem), path


@pytest.mark.parametrize(
    "arguments",
    [
        "['--help']",
        "['sweep', '--help']",
        "['report', 'tests/data/schema1']",
        "['compare', 'tests/data/schema1', 'tests/data/schema1']",
        "['recommend', 'tests/data/schema1', '--length', '1k']",
        "['claims']",
        "['sweep', '--lengths', 'x']",
        "['sweep', '--models', 'linfromer', '--device', 'cpu']",
        "['sweep', '--models', 'linformer', '--dry-run']",
        "['models', 'linformer']",
    ],
)
def test_torch_stays_unloaded(arguments, tmp_path):
    code = f"""
import sys, shutil
from attnbench.__main__ import main
arguments = {arguments}
if arguments[0] == "report":
    arguments[1] = shutil.copytree(arguments[1], {str(tmp_path / "copy")!r})
sys.argv = ["attnbench", *map(str, arguments)]
try:
    main()
except SystemExit:
    pass
sys.exit(9 if "torch" in sys.modules else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.parent, check=False
    )
    assert done.returncode == 0, done.stderr
