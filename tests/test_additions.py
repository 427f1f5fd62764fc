"""A stranger adds one thing in one place; all are added to one copy of the package, and work.

The copy measures one sweep; all its commands run in one process.
"""

import csv
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from attnbench.records.storage.journal import load
from tests.commands.commands import environment, python
from tests.driven import Driven

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1] / "attnbench"
DEVICE = '''"""A device for a test."""

from attnbench.devices.kinds.cpu import Cpu


class Mine(Cpu):
    """The CPU by another name."""

    preference = 9
    tokens = 64
    budget_s = None

    def missing(self):
        return "" if self.index < 2 else "there are two"

    def title(self):
        return f"mine, number {self.index}"
'''
FIGURE = '''"""A figure for a test."""

from matplotlib.figure import Figure


def parameters_figure(cases):
    figure = Figure()
    figure.subplots().bar(cases["series"], cases["parameters"])
    return figure
'''
VERB = '''"""`attnbench hello`: greet."""


def hello() -> None:
    """Greet."""
    print("hello")
'''

MODE = """    # training without the step of the optimiser
    "forward_backward": ModeFacts(
        title="Forward and backward", trains=True, forward_passes=3.0, copies=2
    ),
"""
SUBJECT = '''

class ForwardBackward(Training):
    """The target alone."""

    def prepare(self):
        self.target = self._target()


SUBJECTS = {**SUBJECTS, "forward_backward": ForwardBackward}
'''

NOTE = """    note: Count = option_field(HelpPanel.TIME, "A number to store with the sweep.", 0)
"""
NAPS = """    naps: Count | None = option_field(
        HelpPanel.TIME,
        "Naps before each case.",
        None,
        worker=True,
        compared=True,
        described="naps",
    )
"""

PACKAGE = '''"""numpy: nothing of its own."""

from types import MappingProxyType

from attnbench.mechanisms import local
from attnbench.mechanisms.peers import Peer


class Local(Peer, local.Local):
    package = "numpy"
    module = "numpy"


FORMS = MappingProxyType({"local": Local})
'''

JUDGES = """
import json
import attnbench
from attnbench.analysis.report import analyse
from attnbench.commands.claims.claim import read_claims
from attnbench.commands.claims.judging import judge_claim
from attnbench.commands.options import selections
from attnbench.commands.check.starting import runner
from attnbench.commands.check.cases import CheckPlan
from attnbench.commands.check.against import against_revision
from attnbench.commands.check.page import data
from attnbench.records.storage.journal import load

sizes = {"lengths": (16,), "modes": ("inference",), "width": 16, "heads": 2, "tokens": 64}
plan = CheckPlan(**sizes, looks=(3, 3), rounds=4, iteration_s=0.0005)
with runner(trees_only=True) as measuring:
    report = against_revision(plan, "HEAD", selections("local:eager"), measuring)
picture = attnbench.load("s").plot("cold").content.decode()
found = analyse(load("s"))
head = "id,claim,predicate,a,b,quantity,lengths,value"
row = "warm,C.,ratio,local:eager,nearby:eager,cold,16,0.001..1000"
(claim,) = read_claims(head + chr(10) + row, "mine.csv")
said = {"picture": picture, "answer": judge_claim(found, claim).conclusion.answer}
print(json.dumps({**data(report, strict=False), **said}))
"""


COMMON = ("--help", "sweep --help", "hello", "models @decode --json", "models local")
COMMON = (*COMMON, "compare s s --json")
REFUSED = {
    "doctor --device tpu": "auto, cpu, cuda, mine",
    "doctor --device mine:2": "mine:2: there are two",
}
BOTH_WAYS = (
    "sweep --models local:eager --lengths 16,32 --width 16 --heads 2 --level attention --quick"
    " --mode inference,forward_backward --out m"
)
IN_MODE = (
    BOTH_WAYS,
    "compare m m --json",
    "check --save kept --models local --lengths 16 --mode forward_backward",
    "check --baseline kept --json",
)
PLANNED = "sweep --device mine:1 --models local --lengths 16 --dry-run --json"


class Copy:
    """The package in a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.package = Path(shutil.copytree(ROOT, folder / "attnbench"))

    def write(self, file, text):
        (self.package / file).write_text(text)

    def insert(self, file, after, text):
        """Text behind other text that stands once in a file."""
        path = self.package / file
        source = path.read_text()
        assert source.count(after) == 1, f"{file} has {after!r} {source.count(after)} times"
        path.write_text(source.replace(after, after + text))


def mechanism(copy):
    source = (copy.package / "mechanisms" / "local.py").read_text()
    copy.write(
        "mechanisms/nearby.py", source.replace('"local"', '"nearby"').replace("Local", "Nearby")
    )


def metric(copy):
    row = '    _recorded("longest_s", "longest", "the longest iteration", Unit.SECONDS),\n'
    copy.insert("records/metrics.py", "ROWS = (\n", row)
    copy.insert(
        "measuring/built.py", '"warmup_s": spent_s(warm), ', '"longest_s": spent_s(warm[:1]), '
    )


def quantity(copy):
    row = (
        '    _time("cold_s", "cold iteration", "the first iteration of a process", name="cold",\n'
        '          table=True, figure="cold", compared=True),\n'
    )
    copy.insert("records/metrics.py", 'on a GPU without holding its queue"),\n', row)
    copy.insert(
        "measuring/built.py", '"warmup_s": spent_s(warm), ', '"cold_s": spent_s(warm[:1]), '
    )


def figure(copy):
    copy.write("report/parameters.py", FIGURE)
    copy.insert(
        "report/page.py",
        'f"Time per {step} and size of the state against context"\n',
        '    texts["parameters"] = "Parameters of each series"\n',
    )
    copy.insert(
        "report/page.py",
        'of a mode that steps, or a map."""\n',
        '    if stem == "parameters":\n        return parameters_figure(analysis.cases)\n',
    )
    copy.insert(
        "report/page.py",
        "from attnbench.report.grid import Report, Table\n",
        "from attnbench.report.parameters import parameters_figure\n",
    )


def verb(copy):
    copy.write("commands/hello.py", VERB)
    row = 'Verb(module="attnbench.commands.hello", function="hello", summary="Greet.")'
    copy.insert("commands/verbs.py", "MappingProxyType({\n", f'    "hello": {row},\n')


def stored_option(copy):
    copy.insert("records/request.py", "    settings: Settings\n", NOTE)
    (copy.folder / "mine.toml").write_text("note = 7\n")


def measuring_option(copy):
    copy.insert("records/request.py", 'inputs and order.", 0)\n', NAPS)
    copy.insert(
        "records/messages.py",
        "    core: int | None = None  # to which the process is bound from now on\n",
        "    naps: int | None = None\n",
    )
    # what the worker was told is recorded, so that the test can read it
    row = '    _recorded("naps", "naps", Unit.COUNT, "naps before each case"),\n'
    copy.insert("records/metrics.py", "ROWS = (\n", row)
    copy.insert("measuring/built.py", '"load_before": load(), ', '"naps": timing.naps, ')


def package(copy):
    copy.write("mechanisms/peers/numpy.py", PACKAGE)


def device(copy):
    copy.write("devices/kinds/mine.py", DEVICE)


def mode(copy):
    copy.insert("records/modes.py", "MappingProxyType({\n", MODE)
    subject = copy.package / "measuring" / "subject.py"
    subject.write_text(subject.read_text() + SUBJECT)


def judged(folder):
    """What gate and claims of the copy say, of a repository without a change and of its sweep."""
    for command in ("init --quiet", "add attnbench", "commit --quiet -m one"):
        who = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org")
        subprocess.run(["git", *who, *command.split()], cwd=folder, check=True)
    return python("-c", JUDGES, cwd=folder, env=environment(PYTHONPATH=str(folder)))


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The copy with all additions, its sweep in the folder `s`, and what its commands said."""
    made = Copy(tmp_path_factory.mktemp("additions"))
    options = stored_option, measuring_option
    for add in (mechanism, metric, quantity, figure, verb, *options, package, device, mode):
        add(made)
    sizes = ("--lengths", "16,32", "--width", "16", "--heads", "2")
    how = ("--level", "attention", "--mode", "inference", "--quick", "--config", "mine.toml")
    more = ("--naps", "3", "--rounds", "2")
    models = ("--models", "nearby,local:eager,local:numpy")
    driven = Driven(made.folder, PYTHONPATH=str(made.folder))
    done = driven.run("sweep", *models, *sizes, *how, *more, "--out", "s")
    assert done.returncode == 0, done.stderr
    made.said = {line: driven.run(*line.split()) for line in (*COMMON, *REFUSED, PLANNED, *IN_MODE)}
    driven.close()
    made.judged = judged(made.folder)
    with open(made.folder / "s" / "cases.csv", newline="") as stream:
        made.rows = list(csv.DictReader(stream))
    return made


@pytest.mark.parametrize("command", COMMON)
def test_the_command_line_works(copy, command):
    assert copy.said[command].returncode == 0, copy.said[command].stderr


def test_a_further_mechanism_is_one_file(copy):
    assert '"name": "nearby"' in copy.said["models @decode --json"].stdout
    assert {row["outcome"] for row in copy.rows if row["mechanism"] == "nearby"} == {"ok"}


def test_a_further_metric_is_one_row_and_the_line_that_measures_it(copy):
    assert all(float(row["longest_s"]) > 0 for row in copy.rows)


def test_a_further_quantity_with_an_interval_is_one_row_and_the_line_that_measures_it(copy):
    """It is in tables, figures, pages, comparisons, claims and the notebook."""
    for row in copy.rows:
        assert 0 < float(row["cold_lo_s"]) < float(row["cold_s"]) < float(row["cold_hi_s"])
        assert float(row["cold_df"]) > 0
    folder = copy.folder / "s"
    assert "Cold iteration, inference, ms" in (folder / "tables.md").read_text()
    assert "cold_ms_low" in (folder / "cold_inference.csv").read_text()
    assert (folder / "cold.png").read_bytes().startswith(b"\x89PNG")
    page = (folder / "report.html").read_text()
    assert "Cold iteration against length. N = " in page
    if data := re.search(r'id="data"[^>]*>([^<]+)<', page):
        menu = json.loads(data[1])["quantities"]
        (cold,) = (each for each in menu if each["label"] == "cold iteration")
        assert all(point["low"] < point["value"] < point["high"] for point in cold["points"])
    assert "Cold exponent, inference" in (folder / "tables.md").read_text()
    compared = json.loads(copy.said["compare s s --json"].stdout)["cases"]
    ratios = [row for row in compared if row["metric"] == "cold_s"]
    assert len(ratios) == len(copy.rows)
    assert all(row["low"] < row["ratio"] == 1 < row["high"] for row in ratios)
    judged = json.loads(copy.judged.stdout)
    assert "time_s" in {each["metric"] for each in judged["findings"]}
    assert judged["picture"].startswith("<?xml")
    assert judged["answer"] in ("reproduced", "cannot tell")


def test_a_further_figure_is_one_function_its_caption_and_the_line_that_draws_it(copy):
    assert (copy.folder / "s" / "parameters.png").read_bytes().startswith(b"\x89PNG")
    assert "parameters" in (copy.folder / "s" / "report.html").read_text()


def test_a_further_verb_is_one_file_and_its_name_among_the_verbs(copy):
    assert copy.said["hello"].stdout == "hello\n"
    assert "hello" in copy.said["--help"].stdout


def test_a_further_option_that_is_stored_is_one_field(copy):
    assert "--note" in copy.said["sweep --help"].stdout
    assert load(copy.folder / "s").finished
    head = (copy.folder / "s" / "sweep.jsonl").read_text().splitlines()[0]
    assert json.loads(head)["data"]["request"]["note"] == 7


def test_a_further_option_that_reaches_the_worker_is_two_files(copy):
    assert "--naps" in copy.said["sweep --help"].stdout
    assert {float(row["naps"]) for row in copy.rows} == {3.0}
    assert ", seed 0, naps" in (copy.folder / "s" / "report.html").read_text()
    assert "naps = 3" in (copy.folder / "s" / "sweep.toml").read_text()


def test_a_further_package_is_one_file(copy):
    forms = {row["form"] for row in copy.rows if row["mechanism"] == "local"}
    assert forms == {"eager", "numpy"}
    assert "numpy" in copy.said["models local"].stdout


def test_a_further_device_is_one_file(copy):
    """It is the preferred one."""
    sweep = load(copy.folder / "s")
    assert sweep.sessions[0].device == "mine, number 0"
    assert (sweep.request.tokens, sweep.request.budget_s) == (64, None)
    assert {run.outcome for run in sweep.runs} == {"ok"}
    assert {line.case.workload.device for line in sweep.plan} == {"mine"}
    assert "/mine:1" in copy.said[PLANNED].stdout


def test_a_further_mode_is_a_row_of_facts_and_a_class_of_its_iteration(copy):
    assert [copy.said[line].stderr for line in IN_MODE if copy.said[line].returncode] == []
    with open(copy.folder / "m" / "cases.csv", newline="") as stream:
        rows = {(row["mode"], row["seq_len"]): row for row in csv.DictReader(stream)}
    assert {row["outcome"] for row in rows.values()} == {"ok"}
    added = rows["forward_backward", "16"]
    assert (float(added["backward_s"]) > 0, float(added["step_s"])) == (True, 0)
    table = (copy.folder / "m" / "tables.md").read_text()
    assert "Forward and backward time, ms per batch of" in table
    assert "Forward and backward" in (copy.folder / "m" / "report.html").read_text()
    assert (copy.folder / "m" / "fig2.png").exists()
    assert "forward_backward" in copy.said[IN_MODE[1]].stdout
    assert "forward_backward" in copy.said[IN_MODE[-1]].stdout


@pytest.mark.parametrize("command", REFUSED)
def test_a_further_device_is_named_where_one_is_unknown_or_missing(copy, command):
    assert copy.said[command].returncode == 2
    assert REFUSED[command] in copy.said[command].stderr
