"""Every command of the README works as written.

Sweeps are planned and not run. The two commands that set up an environment, the baseline of `.ci`
and the tests themselves are run by `.ci/run`. The wings are those that `test_architecture.py`
tests, and files that the README tells where to add something exist.
"""

import re
import shlex
import shutil
from pathlib import Path

import pytest

import attnbench
from attnbench.analysis.report import analyse
from attnbench.mechanisms.catalogue.registry import built_in
from attnbench.records.storage.journal import load
from attnbench.records.storage.resuming import defining
from attnbench.report.page import captions
from attnbench.running.request.options import read
from attnbench.running.request.requests import request
from tests.commands.check.repositories import Repository, planted
from tests.commands.commands import here
from tests.doubles import command_line
from tests.running.request.test_options import on_the_command_line
from tests.test_architecture import WINGS

ROOT = Path(__file__).parents[1]
CONFIGURATION = ROOT / "tests" / "data" / "configurations" / "kimi-linear-48b.json"
README, CONTRIBUTING, REPORTS = (
    "\n".join((ROOT / file).read_text(encoding="utf-8") for file in files)
    for files in (
        ("README.md",),
        (".github/CONTRIBUTING.md",),
        ("reports/README.md", "reports/MANUAL.md"),
    )
)
GUIDES = (
    "README.md",
    ".github/CONTRIBUTING.md",
    ".github/CHANGELOG.md",
    "reports/README.md",
    "reports/MANUAL.md",
    "reports/examples/README.md",
)
BLOCKS = re.findall(r"```sh\n(.*?)```", README + REPORTS, re.DOTALL)
TEXTS = re.findall(r"```text\n(.*?)```", README + REPORTS, re.DOTALL)
ROWS = re.findall(r"^\| .* \| `(attnbench .*)` \|$", README, re.MULTILINE)
LINES = tuple(
    dict.fromkeys(
        line.partition("  #")[0].rstrip()
        for block in (*BLOCKS, *ROWS)
        for line in block.splitlines()
        if line.strip()
    )
)
COMMANDS = tuple(line for line in LINES if line.startswith("attnbench "))
# the files of the user that the commands name
((MODULE, NOTEBOOK), (CLAIMS,)) = (
    re.findall(rf"```{kind}\n(.*?)```", README + REPORTS, re.DOTALL) for kind in ("python", "csv")
)


READING = ("models", "report", "recommend", "compare", "claims", "doctor", "bytes")


def slow(line):
    """A command, which is run by the long tests where it loads torch or draws many figures."""
    long = "--verify" in line or "--formats" in line
    return pytest.param(line, marks=pytest.mark.long if long else ())


def run(line, folder, code=0):
    return here(*shlex.split(line, comments=True)[1:], cwd=folder, code=code)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the sweeps and files that the README names."""
    made = tmp_path_factory.mktemp("readme")
    for name in ("cpu-fig2", "monday", "tuesday"):
        shutil.copytree(ROOT / "reports" / "cpu-fig2", made / "reports" / name)
    (made / "mine.py").write_text(MODULE)
    (made / "mine.csv").write_text(CLAIMS)
    shutil.copy(CONFIGURATION, made / "config.json")
    return made


def of(*verbs):
    return [line for line in COMMANDS if line.split()[1] in verbs]


@pytest.mark.long
@pytest.mark.parametrize("line", of("sweep", "model"))
def test_a_sweep_can_be_planned(line, folder):
    done = run(line.replace("--dry-run", "") + " --dry-run", folder)
    assert "Nothing was run." in " ".join(done.stdout.split())


@pytest.mark.parametrize("line", of("explain"))
def test_an_explanation_can_be_planned(line, folder):
    with command_line.unmeasured():
        done = run(line, folder, code=None)
    assert done.stderr.endswith(f"{command_line.STARTED}\n")


@pytest.mark.parametrize("line", [slow(line) for line in of(*READING)])
def test_what_measures_nothing_runs(line, folder):
    assert run(line, folder).stdout


def test_the_bytes_shown_are_those_counted(folder):
    line, *_ = of("bytes")
    shown = next(text for text in TEXTS if text.startswith("Bytes"))
    counted = [row.rstrip() for row in run(line, folder).stdout.splitlines()]
    assert counted[: len(shown.splitlines())] == shown.splitlines()


def test_captions_are_those_of_the_journals():
    picture = r"!\[[^]]*\]\(reports/([\w-]+)/(\w+)\.png\)\n\n\*(.*?)\*\n\n"
    shown = README + REPORTS.replace("](cpu-", "](reports/cpu-")
    found = re.findall(picture, shown, re.DOTALL)
    assert [stem for _, stem, _ in found] == ["fig2", "map", "decode"]
    for name, stem, text in found:
        sweep, said = load(ROOT / "reports" / name), " ".join(text.split())
        assert captions(analyse(sweep))[stem] in said
        words = re.search(rf"`attnbench sweep (.*?) --out reports/{name}`", said)[1]
        assert defining(request(on_the_command_line(shlex.split(words)))) == defining(sweep.request)
        assert not re.search(r"\d[×%]|\bms\b", said.replace("95 %", "")), "a number that was typed"


@pytest.mark.long
def test_the_lines_of_the_notebook_run(folder, monkeypatch):
    """Its sweep is planned: what a real one gives is tested in tests/api."""
    monkeypatch.chdir(folder)
    asked = []

    def sweep(**options):
        asked.append(request(read(options)))
        return attnbench.load("reports/cpu-fig2")

    monkeypatch.setattr(attnbench, "sweep", sweep)
    exec(NOTEBOOK, {})
    assert asked[0].lengths == (512, 1024)
    assert (folder / "memory.pdf").stat().st_size > 1000


def test_a_check_against_a_branch_runs(tmp_path):
    (line,) = [line for line in of("check") if "--base " in line]
    repository = Repository(tmp_path / "mine")
    repository.write("small.py", planted("weights.exp()"))
    repository.git("checkout", "-q", "main", "--", ".")
    run(line, repository.folder)


def test_ci_begins_with_what_sets_up_an_environment_and_runs_the_baseline():
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (gate,) = [line for line in of("check") if "--baseline" in line]
    assert f".nox/tests/bin/{gate}" in ci
    others = [line for line in LINES if line not in COMMANDS]
    assert len(others) == 2
    assert "\n".join(others) in ci, "one after the other, word for word"
    assert ci.index(others[0]) < ci.index("nox -s"), "before anything else is installed"
    assert "PIP_CONSTRAINT" not in ci


def test_the_wings_are_those_of_the_architecture():
    table = CONTRIBUTING.partition("## How it is built")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [*reversed(WINGS)]


def test_the_walk_leads_through_files_that_exist():
    walk = CONTRIBUTING.partition("## How a sweep runs")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d+\. `([\w/]+\.py)`: `(\w+)`", walk, re.MULTILINE)
    assert len(steps) == 10
    for file, function in steps:
        assert f"def {function}(" in (ROOT / "attnbench" / file).read_text(), (file, function)


@pytest.mark.parametrize("file", GUIDES)
def test_links_lead_somewhere(file):
    links = re.findall(r"\]\(([^)#:]+)[^):]*\)", (ROOT / file).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / file).parent.joinpath(link).exists()] == []


def test_files_to_add_something_to_exist():
    table = CONTRIBUTING.partition("## Where to add what")[2].partition("\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("| a")]
    for row in rows:
        folder = ROOT / "attnbench"
        for path in re.findall(r"`([\w/*]+\.py|\w+/(?:\w+/)?)`", row):
            # a bare name stands in the folder of the name before it
            found = [*(ROOT / "attnbench").glob(path), *folder.glob(path)]
            assert found, path
            folder = found[0].parent
    assert len(rows) == 21


def test_the_number_of_mechanisms_stands_once_and_is_right():
    """Whoever adds one finds here what else says how many there are."""
    known = len(built_in())
    (first,) = re.findall(r"of (\d+) attention mechanisms", " ".join(README.split()))
    assert int(first) == known, "README.md says in its first lines how many there are"
    files = (*GUIDES, "CITATION.cff")
    texts = {file: " ".join((ROOT / file).read_text(encoding="utf-8").split()) for file in files}
    again = {
        file: len(re.findall(rf"\b{known} (?:\w+ )?mechanisms\b", text))
        for file, text in texts.items()
    }
    assert again == {**dict.fromkeys(files, 0), "README.md": 1}, "it is to be written once"
    parts = [file for file, text in texts.items() if re.search(r"(teen|ty-?\w*) of current", text)]
    assert parts == [], "parts of the number are not to be written"


def test_each_word_of_the_glossary_is_used():
    table = CONTRIBUTING.partition("## Words")[2].partition("\n## ")[0]
    words = re.findall(r"^\| ([a-z ]+) \|", table, re.MULTILINE)[1:]
    code = [path.read_text(encoding="utf-8") for path in (ROOT / "attnbench").rglob("*.py")]
    text = "\n".join([README, REPORTS, *code])
    assert len(words) > 25
    assert [word for word in words if not re.search(rf"\b{word}(s|es)?\b", text, re.I)] == []


def test_words_are_explained_where_they_are_first_met():
    for word in ("layer", "core", "form", "round"):
        first = re.search(rf"\*\*{word}\*\*", README)
        assert first, word
    assert "(statistics calls this a control variate)" in " ".join(REPORTS.split())
    for hard in ("control variate", "core_flops", "needs a card", "the first output counts"):
        assert hard not in README, hard
