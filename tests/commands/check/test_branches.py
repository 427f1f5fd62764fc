"""The gate on planted branches: every exit code of the table, and how much was compared."""

from dataclasses import replace

import pytest

from attnbench.commands.check.against import against_revision
from attnbench.commands.check.cases import CheckPlan
from attnbench.commands.check.page import headline
from attnbench.commands.check.starting import runner
from attnbench.errors import CannotRun, UsageError
from attnbench.records import Selection
from tests.commands.check.branches import BRANCHES, SHOP
from tests.commands.check.repositories import Repository
from tests.commands.commands import attnbench, environment

# so few pairs that they decide nothing but tenfold changes
PLAN = CheckPlan(
    looks=(3, 3), most=6, rounds=4, iteration_s=0.001, threshold=1.0, budget_s=60.0, results=True
)


# of those that take times, the ones that every run of the tests plants
ALWAYS = {
    "a benchmark that is gone from an enlarged file",
    "another result",
}
# of the others, those that end as another one does
ALIKE = {
    "base lacks what git ignores, and head has ten times the work",
    "base runs without what git ignores",
    "named and new",
    "fails on both",
    "needs what is not installed",
    "exits",
}


def is_long(name):
    """Whether a branch takes long: what is compared is timed."""
    branch = BRANCHES[name]
    timed = branch.timed or branch.compared > 0 or bool(branch.path)
    return name in ALIKE or (name not in ALWAYS and timed)


def planted(folder, branch):
    """The repository, with the branch checked out."""
    made = Repository(folder)
    made.git("rm", "--quiet", "small.py")
    for path, text in {**SHOP, **branch.base}.items():
        made.write(path, text.replace("HEAD", str(folder)))
    made.commit("base")
    made.git("checkout", "--quiet", "-b", "branch")
    for path, text in branch.head.items():
        if text is None:
            made.git("rm", "--quiet", path)
        else:
            made.write(path, text)
    made.commit("head")
    if branch.main:
        made.git("checkout", "--quiet", "main")
        for path, text in branch.main.items():
            made.write(path, text)
        made.commit("main went on")
        made.git("checkout", "--quiet", "branch")
    for path, text in branch.ignored.items():
        made.write(path, text)
    return made


def checked(made, branch, plan=PLAN):
    """The report on a branch, by the processes that a check has."""
    asked = [Selection(name=name) for name in branch.call.split(",")]
    plan = replace(plan, prepare=branch.prepare)
    with runner(functions=True) as measuring:
        where = made.folder / branch.folder
        return against_revision(plan, "main", asked, measuring, where, functions=True)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if is_long(name) else [])
        for name, branch in BRANCHES.items()
    ],
)
def test_a_planted_branch_ends_as_it_must(name, tmp_path):
    branch = BRANCHES[name]
    made = planted((tmp_path / "repo").resolve(), branch)
    plan = PLAN if branch.timed else replace(PLAN, looks=(3, 0), most=3, threshold=10.0)
    if branch.path:  # the servers of tests are forked, and have the import path of the tests
        done = attnbench(
            *("check", "--base", "main", "--call", branch.call),
            cwd=made.folder / branch.folder,
            env=environment(PYTHONPATH=str(made.folder / branch.path)),
            code=branch.code,
        )
        assert branch.words in " ".join(done.stdout.split())
        return
    report = checked(made, branch, plan)
    said = " ".join([headline(report), *report.notes])
    assert (report.exit_code(strict=False), len(report.compared_cases)) == (
        branch.code,
        branch.compared,
    )
    assert branch.words in said, said
    if branch.strict is not None:
        assert report.exit_code(strict=True) == branch.strict


def test_thirty_branches_are_planted():
    assert len(BRANCHES) >= 30


@pytest.mark.parametrize(
    ("prepare", "budget_s", "words"),
    [
        ("echo first; echo second; exit 3", 60.0, "ended with exit code 3 in base's tree | first"),
        ("echo begun; sleep 60", 2.0, "took longer than --budget allows in base's tree"),
    ],
)
def test_a_preparation_that_fails_says_its_last_lines(prepare, budget_s, words, tmp_path):
    branch = replace(BRANCHES["unchanged"], prepare=prepare)
    with pytest.raises(CannotRun, match=r"--prepare .*(second|begun)$") as failed:
        checked(planted(tmp_path / "repo", branch), branch, replace(PLAN, budget_s=budget_s))
    assert words in str(failed.value)


def test_a_shallow_clone_without_the_merge_base_says_what_fetches_it(tmp_path):
    branch = replace(BRANCHES["behind a broken main"], code=2)
    made = planted(tmp_path / "repo", branch)
    copy = Repository(tmp_path / "copy")
    for name in ("main", "branch"):
        copy.git("fetch", "--quiet", "--depth=1", f"file://{made.folder}", f"{name}:of-{name}")
    copy.git("checkout", "--quiet", "of-branch")
    copy.git("branch", "--quiet", "--force", "main", "of-main")
    with pytest.raises(UsageError, match=r"lacks the merge base .* git fetch --unshallow"):
        checked(copy, branch)


def test_an_empty_revision_is_bad_usage(tmp_path):
    made = planted(tmp_path / "repo", BRANCHES["unchanged"])
    with runner(functions=True) as measuring, pytest.raises(UsageError, match="--base is empty"):
        against_revision(PLAN, "", [], measuring, made.folder, functions=True)
