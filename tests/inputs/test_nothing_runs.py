"""Loading a file of data runs nothing: no code of attnbench can turn bytes into objects."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "attnbench"
FILES = sorted(ROOT.rglob("*.py"))

# modules and calls that run what they read, and calls that do so by default
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "code", "runpy"}
CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
METHODS = {
    "torch.load": "it unpickles",
    "np.load": "it may unpickle",
    "numpy.load": "it may unpickle",
    "pd.read_pickle": "it unpickles",
    "pd.eval": "it evaluates",
    "os.system": "a shell obeys what it is given",
    "os.popen": "a shell obeys what it is given",
}
KEYWORDS = {("allow_pickle", True), ("shell", True)}

# a user's own module is run by name, a revision's by the side that measures it; a device is a file,
# and so is a package that computes forms
RUNS = {"registry.py", "measure/server.py", "device.py", "peers/__init__.py"}


def where(path):
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", FILES, ids=where)
def test_nothing_reads_objects_or_code(path):
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=found):
                modules = {alias.name.partition(".")[0] for alias in found}
            case ast.ImportFrom(module=str(name)):
                modules = {name.partition(".")[0]}
            case ast.Call():
                modules = set()
                called = ast.unparse(node.func)
                assert called not in CALLS, f"{path.name}:{node.lineno} calls {called}"
                assert called not in METHODS, f"{path.name}:{node.lineno}: {METHODS.get(called)}"
                given = {(k.arg, getattr(k.value, "value", None)) for k in node.keywords}
                assert not given & KEYWORDS, f"{path.name}:{node.lineno} has {given & KEYWORDS}"
            case _:
                continue
        assert not modules & MODULES, f"{path.name}:{node.lineno} imports {modules & MODULES}"


@pytest.mark.parametrize("path", FILES, ids=where)
def test_modules_are_loaded_by_name_in_few_places(path):
    text = path.read_text()
    if "import_module(" in text or "exec_module(" in text:
        assert where(path) in RUNS


@pytest.mark.parametrize("room", ["store", "analysis", "claims", "render"])
def test_the_paper_wing_loads_no_module_at_all(room):
    for path in sorted((ROOT / room).rglob("*.py")):
        text = path.read_text().replace("from importlib.resources import files", "")  # data
        assert "importlib" not in text, path
