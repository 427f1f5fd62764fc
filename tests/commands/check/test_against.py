"""A check of throw-away repositories: planted changes are found, and nothing is left behind."""

from dataclasses import replace

import pytest

from attnbench.commands import options
from attnbench.commands.check.against import against_revision
from attnbench.commands.check.baseline import against_file, save_baseline
from attnbench.commands.check.cases import CheckPlan
from attnbench.commands.check.finding import CheckAnswer
from attnbench.commands.check.measuring import Runner
from attnbench.commands.check.page import headline, remarks
from attnbench.commands.check.repository import root
from attnbench.errors import CannotRun, UsageError
from attnbench.measuring.server import module_name_in
from attnbench.records import Mode
from tests.commands.check.repositories import MECHANISM, Repository, planted

COUNTING = CheckPlan(
    lengths=(16,), modes=(Mode.INFERENCE,), width=32, heads=2, tokens=64, times=False
)
TIMING = replace(
    COUNTING,
    lengths=(64,),
    times=True,
    looks=(3, 3),
    most=6,
    rounds=4,
    iteration_s=0.002,
    threshold=0.2,
)
WORK = "for _ in range(200): torch.ones(64, 64) @ torch.ones(64, 64)"


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "repo")


def check(repository, server, plan=COUNTING, base="HEAD", models=None):
    """A report, after verifying that the repository is unchanged."""
    before = repository.state
    chosen = models and options.selections(models)
    runner = Runner(server=server)
    try:
        return against_revision(plan, base, chosen, runner, repository.folder)
    finally:
        assert repository.state == before


def timed(report):
    """The only finding on times."""
    (found,) = (found for found in report.findings if found.metric == "time_s")
    return found


def failing(report):
    return {found.metric for found in report.failures}


@pytest.mark.long
def test_a_slowdown_is_slower_and_fails(repository, server):
    repository.write("small.py", planted(WORK))
    report = check(repository, server, TIMING)
    time = timed(report)
    assert time.verdict == "slower"
    assert time.ratio > 1.2
    assert time.batch >= 1
    assert {found.case for found in report.findings} == {time.case}
    assert "/B1-N64-" in time.case, "counts and times have one name"
    assert report.exit_code(strict=False) == 1


def test_a_mechanism_that_changes_its_process_changes_no_other(repository, server, monkeypatch):
    """Ones take twice the memory where another mechanism has changed the default type."""
    repository.write("zero.py", planted("torch.ones(800_000)"))
    repository.commit("two")
    repository.write("small.py", planted("torch.set_default_dtype(torch.float64)"))
    monkeypatch.chdir(repository.folder)
    report = check(repository, server, models="small.py:CARD,zero.py:CARD")
    assert {found.verdict for found in report.findings if "zero.py" in found.case} == {"same"}


@pytest.mark.long
def test_a_head_that_never_loads_is_over_budget(repository, server):
    repository.write("small.py", "import time; time.sleep(600)\n" + MECHANISM)
    with pytest.raises(CannotRun, match=r"--budget of 4 s ended while waiting for "):
        check(repository, server, replace(COUNTING, budget_s=4.0))


@pytest.mark.parametrize(
    ("line", "mode", "metrics"),
    [
        ("weights.exp()", Mode.INFERENCE, {"operators"}),
        ("(cycle := []).append(cycle)", Mode.INFERENCE, {"garbage"}),
        pytest.param(
            "unused = torch.ones(50_000)",
            Mode.INFERENCE,
            {"operators", "allocated_peak_bytes"},
            marks=pytest.mark.long,
        ),
        (
            "weights = weights.sin().asin()",
            Mode.TRAINING,
            {"operators", "allocated_peak_bytes", "saved_bytes"},
        ),
    ],
)
def test_growth_is_found_by_counting(line, mode, metrics, repository, server):
    repository.write("small.py", planted(line))
    report = check(repository, server, replace(COUNTING, modes=(mode,)))
    assert failing(report) == metrics
    assert report.conditions.worst_floor is None  # nothing was timed
    assert report.exit_code(strict=False) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(
            planted("return (weights @ v)[:, :, :8]"), "output has shape", marks=pytest.mark.long
        ),
        (planted("import os; os._exit(3)"), "the process ended without an answer"),
        pytest.param("import nowhere\n" + MECHANISM, "No module named", marks=pytest.mark.long),
        pytest.param(MECHANISM.replace('"eager": Small', "**{}"), "eager", marks=pytest.mark.long),
    ],
    ids=["shape", "dies", "import", "no form"],
)
def test_what_fails_on_one_side_only(text, words, repository, server):
    repository.write("small.py", text)
    on_head = check(repository, server)
    assert failing(on_head) == {"runs"}
    assert words in on_head.failures[0].reason
    assert "on head only" in on_head.failures[0].reason
    assert on_head.exit_code(strict=False) == 1
    repository.commit("broken")
    repository.write("small.py", MECHANISM)
    on_base = check(repository, server)
    assert not on_base.failures
    assert "on base only" in on_base.findings[0].reason


@pytest.mark.parametrize(("most", "code"), [(1, 0), (9, 3)])
def test_a_process_that_is_killed_is_counted_once_more(most, code, repository, server, tmp_path):
    """By itself here; by the kernel or someone else it would look the same."""
    kills = f"(d := __import__('pathlib').Path({str(tmp_path)!r}, str(os.getpid()))).touch()"
    few = f"len([*d.parent.glob('[0-9]*')]) > {most} or os.kill(os.getpid(), 9)"
    repository.write("small.py", "import os\n" + planted(f"{kills}; {few}"))
    report = check(repository, server)
    assert report.exit_code(strict=False) == code
    assert bool(report.findings_with(CheckAnswer.KILLED)) == bool(code)
    assert not failing(report)


def test_what_a_baseline_leaves_out_is_said(repository, server, monkeypatch, tmp_path):
    monkeypatch.chdir(repository.folder)
    runner = Runner(server=server)
    file, models = tmp_path / "baseline.json", options.selections("small.py:CARD,no.py:X")
    with pytest.raises(CannotRun, match=r"no case ran .*; no.py:X.*: there is no file no.py"):
        save_baseline(COUNTING, file, models[1:], runner)
    assert not file.exists()
    count, (left_out,) = save_baseline(COUNTING, file, models, runner)
    assert (count, left_out.partition(":X")[0]) == (1, "no.py")
    assert {finding.verdict for finding in against_file(COUNTING, file, runner).findings} == {
        "same"
    }


def test_what_is_named_is_checked_though_nothing_changed_and_must_be_there(
    repository, server, monkeypatch
):
    monkeypatch.chdir(repository.folder)
    report = check(repository, server, models="nofile.py:X,small.py:CARD,transformer")
    assert report.exit_code(strict=False) == 2
    nowhere, another = report.unchecked_findings
    assert nowhere.mechanism == "nofile.py:X"
    assert "there is no file nofile.py" in nowhere.reason
    assert "not in this repository" in another.reason
    assert len(report.findings) == 8


@pytest.mark.long
def test_added_removed_and_renamed_mechanisms(repository, server):
    repository.write("other.py", planted("weights.exp()"))
    (added,) = check(repository, server).findings
    assert (added.mechanism, added.verdict, added.fails) == ("other.py:CARD", "missing", False)
    assert "added" in added.reason
    repository.commit("two")
    repository.git("mv", "other.py", "elsewhere.py")
    found = {one.mechanism: one for one in check(repository, server).findings}
    assert "gone from head" in found["other.py:CARD"].reason
    assert "added" in found["elsewhere.py:CARD"].reason
    assert not any(one.fails for one in found.values())


def test_a_change_that_nothing_covers_is_named_and_does_not_pass_for_a_mechanism(
    repository, server
):
    assert check(repository, server).exit_code(strict=True) == 0  # nothing has changed
    repository.write("apart.py", "x = 1\n")
    report = check(repository, server)
    assert (report.findings, report.uncovered) == ((), ("apart.py",))
    assert [report.exit_code(strict) for strict in (False, True)] == [0, 3]
    assert "not covered, as no mechanism loads them: apart.py" in [*remarks(report)]
    repository.write("small.py", "x = 1\n")
    repository.commit("no mechanism any more")
    repository.write("small.py", "x = 2\n")
    report = check(repository, server)
    assert report.exit_code(strict=False) == 2
    assert headline(report).startswith("NOT CHECKED: small.py: on neither side: no mech")


@pytest.mark.parametrize(
    ("files", "name"),
    [
        (("measure/server.py",), "attnbench.measure.worker"),
        (("measuring/server.py",), "attnbench.measuring.worker"),
        (("measure/server.py", "measuring/server.py"), "attnbench.measuring.worker"),
        # what a change of branches leaves of a folder
        (("measure/server.py", "measuring/__pycache__/x.pyc"), "attnbench.measure.worker"),
        ((), "attnbench.measuring.worker"),
    ],
)
def test_the_worker_of_a_tree_is_found_by_its_name_there(files, name, tmp_path):
    for file in files:
        path = tmp_path / "attnbench" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert module_name_in([str(tmp_path)], "attnbench.measuring.worker") == name


def test_a_base_of_another_protocol_is_refused(repository, server):
    for part in ("__init__", "measure/__init__", "measure/server", "measure/worker"):
        repository.write(f"attnbench/{part}.py", "class Worker:\n    pass\n")
    repository.commit("an attnbench of its own, from before protocols had numbers")
    repository.write("small.py", planted("weights.exp()"))
    with pytest.raises(CannotRun, match="it has protocol 1 of measuring processes, not 2"):
        check(repository, server)


@pytest.mark.long
def test_dirty_detached_and_shallow_repositories(repository, server, tmp_path):
    repository.commit("two")
    repository.write("small.py", planted("weights.exp()"))
    repository.git("add", "small.py")
    repository.write("unrelated.txt", "new")
    repository.git("checkout", "--quiet", "--detach", "HEAD")
    report = check(repository, server, base="main~1")
    assert failing(report) == {"operators"}
    assert "uncommitted changes" in report.head

    copy = Repository(tmp_path / "copy")
    copy.git("fetch", "--quiet", "--depth=1", f"file://{repository.folder}", "main")
    copy.git("checkout", "--quiet", "--detach", "FETCH_HEAD")
    copy.write("small.py", planted("weights.exp()"))
    assert failing(check(copy, server)) == {"operators"}
    with pytest.raises(UsageError, match=r"HEAD~1.*shallow.*fetch-depth: 0"):
        check(copy, server, base="HEAD~1")


def test_settings_of_git_and_repositories_of_other_users(repository, server, monkeypatch):
    """Git may give names in colour, search submodules, or refuse a repository."""
    repository.git("config", "color.grep", "always")
    repository.git("config", "submodule.recurse", "true")
    repository.write("small.py", planted("weights.exp()"))
    assert failing(check(repository, server)) == {"operators"}
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    words = r"git rev-parse failed: detected dubious ownership .* git config --global --add safe"
    with pytest.raises(UsageError, match=words):
        root(repository.folder)


def test_a_base_that_is_missing_or_cannot_be_checked_out(repository, server):
    with pytest.raises(
        UsageError, match=r"'nowhere' is not a commit of this repository; give a branch"
    ):
        check(repository, server, base="nowhere")
    with pytest.raises(UsageError, match=r"'--help' is not a commit"):
        check(repository, server, base="--help")
    repository.write("small.py", planted("weights.exp()"))
    blob = repository.git("rev-parse", "HEAD:small.py").strip()
    (repository.folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(CannotRun, match="git checkout-index failed"):
        check(repository, server)


@pytest.mark.parametrize(
    ("lines", "mode", "found", "words"),
    [
        ("weights = weights[..., :] * 1.001", Mode.INFERENCE, "different", "the output differs by"),
        ("weights = weights.detach()", Mode.TRAINING, "different", "the gradient of "),
        pytest.param(
            "weights = (weights + 1e-9) - 1e-9", Mode.TRAINING, "same", "", marks=pytest.mark.long
        ),
        ("weights = torch.nn.functional.dropout(weights, 0.1)", Mode.INFERENCE, "unsure", "draws"),
    ],
    ids=["output", "gradient", "rounding", "draws"],
)
def test_what_computes_something_else_is_found(lines, mode, found, words, repository, server):
    if found == "unsure":
        repository.write("small.py", planted("v = torch.nn.functional.dropout(v, 0.1)"))
        repository.commit("draws")
    repository.write("small.py", planted(lines))
    report = check(repository, server, replace(COUNTING, modes=(mode,)))
    of = [finding for finding in report.findings if finding.metric == "outputs"]
    assert [finding.verdict for finding in of] == [found] * (found != "same")
    assert all(words in finding.reason for finding in of)
    assert ("outputs" in failing(report)) == (found == "different")


def test_parameters_of_other_names_are_not_compared(repository, server):
    more = "    def __init__(self, *a):\n        super().__init__(*a)\n"
    more += "        self.b = torch.nn.Linear(1, 1)\n\n"
    repository.write("small.py", MECHANISM.replace("    def attend", f"{more}    def attend"))
    found = {f.metric: f for f in check(repository, server).findings}
    assert found["outputs"].verdict == "unsure"
    assert found["outputs"].reason.endswith("its parameters have other names or shapes")
