"""Functions of a project that has nothing to do with attention, by `--call` and by pytest."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attnbench.commands.check.starting import runner
from attnbench.records.messages import MeasureMemory, Weighed
from tests.commands.check.repositories import Repository
from tests.commands.commands import here

HELPER = "def work():\n    return sum(range({}))\n"
CODE = (
    "from .helper import work\n\n\ndef index():\n    work()\n\n\ndef factory():\n    return work\n"
    "\n\nasync def later():\n    work()\n"
)
TEST = (
    "import pytest\nfrom shop.code import index\n\n\n@pytest.mark.attnbench\ndef test_index():\n"
    "    index()\n\n\ndef test_other():\n    pass\n"
)


@pytest.fixture
def shop(tmp_path):
    made = Repository(tmp_path / "shop")
    (made.folder / "small.py").unlink()
    made.write("src/shop/__init__.py", "")
    made.write("src/shop/code.py", CODE)
    made.write("src/shop/helper.py", HELPER.format(20_000))
    made.write("tests/test_shop.py", TEST)
    made.commit("a shop")
    return made


@pytest.mark.long
def test_a_slowdown_of_a_function_is_found_and_none_without(shop, tmp_path):
    asked = ("check", "--call", "shop.code:index,shop.code:factory", "--base", "HEAD")
    limits = ("--threshold", "0.2", "--budget", "2m", "--formats", "junit", "--out", tmp_path)
    same = here(*asked, *limits, cwd=shop.folder)
    assert same.stdout.startswith("OK: no regression in 2 cases")
    assert "Counted" not in same.stdout
    shop.write("src/shop/helper.py", HELPER.format(60_000))
    slower = here(*readme_command(shop), *limits, cwd=shop.folder, code=1)
    assert slower.stdout.startswith("FAILED: 1 slower of 1 case")
    assert (tmp_path / "junit.xml").read_text().count("<failure") == 1


def readme_command(shop):
    """What the README's workflow runs in a pull request to the branch `main`."""
    shop.git("update-ref", "refs/remotes/origin/main", "HEAD")
    text = (Path(__file__).parents[3] / "README.md").read_text()
    (command,) = re.findall(r"- run: attnbench (check --call .*)", text)
    return command.replace("${{ github.base_ref }}", "main").split()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("shop.code:nothing", "on neither side: shop.code has no nothing"),
        pytest.param(
            "shop.nowhere:index",
            "on neither side: there is no module shop.nowhere",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "nowhere:index", "on neither side: there is no module nowhere", marks=pytest.mark.long
        ),
        ("json:dumps", "which is not in this repository"),
        pytest.param(
            "src/nofile.py:index",
            "on neither side: there is no file src/nofile.py",
            marks=pytest.mark.long,
        ),
        ("shop.code:later", "shop.code:later returns a coroutine that nobody runs"),
    ],
)
def test_a_function_that_is_nowhere_does_not_pass(name, words, shop):
    done = here("check", "--call", name, "--base", "HEAD", cwd=shop.folder, code=2)
    assert done.stdout.startswith(f"NOT CHECKED: {name}: ")
    assert words in " ".join(done.stdout.split())


TORCHLESS = """
from pathlib import Path
from attnbench.commands.check.starting import runner
from attnbench.records.messages import MeasureMemory
with runner(functions=True) as measuring, measuring.server.process(Path.cwd()) as worker:
    question = MeasureMemory(mechanism="shop.code:index", options=())
    print(worker.refused, worker.ask(question, 60.0).case)
"""


def test_torch_is_loaded_only_by_a_function_that_needs_it(shop):
    code = "import sys\n\n\ndef index():\n    assert 'torch' not in sys.modules\n"
    shop.write("src/shop/code.py", code)
    code, text = run(shop, "-c", TORCHLESS)
    assert (code, text) == (0, "None shop.code:index\n")


def run(shop, *arguments):
    """Code and output of a Python of its own, in which torch is not loaded."""
    path = f"{shop.folder}/src:{Path(__file__).parents[3]}"
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=shop.folder,
        env={
            **shop.environment,
            "PYTHONPATH": path,
            "PATH": "/usr/bin:/bin",
            "OMP_NUM_THREADS": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def pytested(shop, *arguments):
    """A run of pytest with the plug-in once: an installed package would register it too."""
    plug_in = ("-p", "attnbench.commands.check.pytest_plugin", "-p", "no:cacheprovider")
    return run(shop, "-m", "pytest", *plug_in, "-rs", "-q", *arguments)


@pytest.mark.long
def test_the_plug_in_of_pytest_fails_what_is_slower(shop):
    code, text = pytested(shop)
    assert (code, "2 passed" in text) == (0, True), text
    shop.write("src/shop/helper.py", HELPER.format(60_000))
    code, text = pytested(shop, "--attnbench-base", "HEAD")
    assert (code, "1 failed, 1 passed" in text) == (1, True), text
    assert "attnbench: FAILED: 1 slower of 1 case" in text
    assert "tests/test_shop.py::test_index: time slower; +" in text


@pytest.mark.long
def test_a_new_file_that_base_cannot_import_hides_no_slower_test(shop):
    shop.write("src/shop/tax.py", "")
    shop.write("tests/test_tax.py", "import shop.tax\n\n\ndef test_tax():\n    pass\n")
    shop.write("src/shop/helper.py", HELPER.format(60_000))
    code, text = pytested(shop, "--attnbench-base", "HEAD")
    assert code == 1, text
    assert "tests/test_shop.py::test_index: time slower; +" in text


def test_an_installed_copy_of_the_code_is_not_compared_with_itself(shop, tmp_path):
    """As `pip install .` leaves it, of a package in a folder that no import path names."""
    site = tmp_path / "site"
    shutil.move(shop.folder / "src", shop.folder / "python")
    shop.write("benchmarks/bench_shop.py", "from shop.code import index\n")
    shop.commit("a folder of another name")
    shutil.copytree(shop.folder / "python" / "shop", site / "shop")
    about = site / "shop-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (about / "direct_url.json").write_text(
        json.dumps({"url": shop.folder.as_uri(), "dir_info": {}})
    )
    names = ("__init__.py", "code.py", "helper.py")
    (about / "RECORD").write_text("".join(f"shop/{name},,\n" for name in names))
    shop.write("python/shop/helper.py", HELPER.format(60_000))
    path = f"{site}:{Path(__file__).parents[3]}"
    asked = ("check", "--call", "benchmarks.bench_shop:index", "--base", "HEAD")
    done = subprocess.run(
        [sys.executable, "-m", "attnbench", *asked],
        cwd=shop.folder,
        env={**os.environ, **shop.environment, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "installed from this repository" in " ".join((done.stdout + done.stderr).split())


TESTS = """
import json
import pytest
from shop.code import index


class TestShop:
    @pytest.mark.parametrize("n", [1, 2])
    def test_method(self, n, benchmark):
        assert benchmark(json.dumps, n) == str(n)


@pytest.mark.attnbench
@pytest.mark.parametrize(("text", "other"), [("a", None)])
def test_pair(text, other):
    assert text == "a" and other is None


def test_nothing(benchmark):
    pass


def test_with_fixture(benchmark, tmp_path):
    pass


@pytest.mark.parametrize("x", [object()])
def test_odd(benchmark, x):
    pass
"""


TOLD = """
import attnbench.commands.check.against as check
from attnbench.commands.check.finding import Answer, Finding, Report

def told(plan, base, asked, *_, **__):
    about = {"metric": "time_s", "answer": Answer.NOT_KNOWN, "ratio": 1.0}
    cases = (Finding(mechanism=one.name, case=str(one), **about) for one in asked)
    return Report(base=base, head="head", findings=tuple(cases))

check.against_revision = told
"""


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("TestShop.test_method", (("n", 1),), None),
        ("test_pair", (("text", "a"), ("other", None)), None),
        ("test_pair", (("text", "b"), ("other", None)), "AssertionError"),
        ("test_nothing", (), "test_nothing gives nothing to its fixture benchmark"),
        ("TestShop.test_other", (), "tests/test_shop.py has no TestShop.test_other"),
    ],
)
def test_a_test_is_called_as_pytest_would(name, options, reason, shop):
    shop.write("tests/test_shop.py", TESTS)
    question = MeasureMemory(mechanism=f"tests/test_shop.py:{name}", options=options)
    with runner(functions=True) as measuring, measuring.server.process(shop.folder) as worker:
        answer = worker.ask(question, 60.0)
    assert reason in answer.reason if reason else isinstance(answer, Weighed)
