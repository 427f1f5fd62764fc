"""Loading a file of data runs nothing: no code of attnbench can turn bytes into objects."""

import ast
import re
from pathlib import Path

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
SAFE = "weights_only", True  # torch.load then reads tensors alone

# a user's own module is run by name, a revision's by the side that measures it; a device is a file,
# and so are a mode and a package that computes forms
RUNS = {
    "catalogue/registry.py",
    "devices/finding.py",
    "measure/calls.py",
    "measure/server.py",
    "modes/__init__.py",
    "peers/__init__.py",
}


def where(path):
    return path.relative_to(ROOT).as_posix()


def read(path):
    """What in a file may turn what it reads into objects or code."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=found):
                names = {alias.name for alias in found}
            case ast.ImportFrom(module=str(name)):
                names = {name}
            case ast.Call():
                called = ast.unparse(node.func)
                given = {(k.arg, getattr(k.value, "value", None)) for k in node.keywords}
                if called in CALLS or (called in METHODS and SAFE not in given):
                    yield f"line {node.lineno} calls {called}: {METHODS.get(called, 'it runs it')}"
                yield from (f"line {node.lineno} has {found}" for found in given & KEYWORDS)
                continue
            case _:
                continue
        modules = {name.partition(".")[0] for name in names} & MODULES
        yield from (f"line {node.lineno} imports {module}" for module in modules)


def test_nothing_reads_objects_or_code():
    found = [f"{where(path)} {wrong}" for path in FILES for wrong in read(path)]
    assert not found, "\n".join(found)


def test_modules_are_loaded_by_name_in_few_places():
    texts = {where(path): path.read_text() for path in FILES}
    found = {name for name, text in texts.items() if re.search(r"(import|exec)_module\(", text)}
    assert found <= RUNS
