"""A repository as git describes it, and its revisions in folders of their own."""

import pytest

from attnbench.commands.check import repository
from attnbench.errors import CannotRun, UsageError
from tests.commands.check.repositories import Repository


@pytest.fixture
def made(tmp_path):
    """A repository with one commit on main."""
    return Repository((tmp_path / "repo").resolve())


def head(made):
    return made.git("rev-parse", "HEAD").strip()


def test_the_top_folder_is_found_from_below_and_is_refused_outside(made, tmp_path):
    made.write("deep/er/x.py", "")
    assert repository.root(made.folder / "deep" / "er") == made.folder
    assert repository.top(made.folder / "deep") == made.folder
    assert repository.top(tmp_path) == tmp_path
    with pytest.raises(UsageError, match="is not in the working tree of a git repository; git"):
        repository.root(tmp_path)


def test_a_hook_of_git_moves_no_question_to_its_own_repository(made, tmp_path, monkeypatch):
    other = Repository(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other.folder / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.folder))
    assert repository.root(made.folder) == made.folder


def test_base_is_the_commit_itself_or_the_merge_base_which_is_said(made):
    first = head(made)
    found = repository.base(made.folder, "main")
    assert (found.commit, found.text, found.notes) == (first, f"main ({first[:10]})", ())
    made.git("checkout", "--quiet", "-b", "branch")
    made.write("small.py", "x = 1\n")
    made.commit("branch")
    made.git("checkout", "--quiet", "main")
    made.commit("main went on")
    made.git("checkout", "--quiet", "branch")
    found = repository.base(made.folder, "main")
    assert found.commit == first
    assert found.text.startswith(f"{first[:10]}, the merge base with main (")
    (note,) = found.notes
    assert "is no ancestor of this working tree" in note


def test_a_revision_without_a_common_ancestor_is_measured_as_it_is(made):
    made.git("checkout", "--quiet", "--orphan", "other")
    made.commit("another beginning")
    other = head(made)
    made.git("checkout", "--quiet", "main")
    found = repository.base(made.folder, "other")
    assert found.commit == other
    assert found.notes[0].endswith("have no common ancestor; it is measured as it is")


@pytest.mark.parametrize(
    ("revision", "said"),
    [
        ("", "--base is empty: give a branch"),
        (" ", "--base is empty"),
        ("nowhere", "'nowhere' is not a commit of this repository; give a branch"),
        ("HEAD:small.py", "is not a commit"),
        ("--all", "'--all' is not a commit"),
        ("a\0b", "is not a commit"),
    ],
)
def test_what_is_no_revision_is_refused(made, revision, said):
    with pytest.raises(UsageError, match=said):
        repository.commit(made.folder, revision)


def test_a_shallow_clone_is_told_what_fetches_the_rest(made, tmp_path):
    made.commit("two")
    copy = Repository(tmp_path / "copy")
    copy.git("fetch", "--quiet", "--depth=1", f"file://{made.folder}", "main")
    assert repository.is_shallow(copy.folder)
    assert not repository.is_shallow(made.folder)
    with pytest.raises(UsageError, match=r"is shallow: get it with git fetch --unshallow"):
        repository.commit(copy.folder, "FETCH_HEAD~1")


def test_changes_are_all_files_that_differ_but_those_that_git_ignores(made):
    made.write(".gitignore", "ignored\n")
    made.write("größe.py", "1")
    made.write("moved.py", "2")
    made.commit("two")
    base = head(made)
    made.git("mv", "moved.py", "there.py")
    made.write("größe.py", "3")
    made.write("ignored", "")
    made.write("new\nline.py", "")
    assert {*repository.changes(made.folder, base)} == {
        *("größe.py", "moved.py", "there.py", "new\nline.py"),
    }
    assert repository.ignored_paths(made.folder, ("ignored", "größe.py")) == ("ignored",)
    assert repository.ignored_paths(made.folder, ()) == ()


def test_the_working_tree_is_named_with_its_commit_and_whether_it_is_clean(made):
    short = made.git("rev-parse", "--short", "HEAD").strip()
    assert repository.tree_text(made.folder) == f"the working tree at {short}"
    made.write("new.py", "")
    assert repository.tree_text(made.folder).endswith(f"{short} with uncommitted changes")


def test_files_are_searched_for_a_text_and_not_for_a_pattern(made):
    made.write(".gitignore", "ignored.py\n")
    for path in ("a.py", "deep/b.py", "c.txt", "ignored.py"):
        made.write(path, "x = Card(.)\n")
    assert {*repository.files_with(made.folder, "Card(.)")} == {"a.py", "deep/b.py"}
    assert repository.files_with(made.folder, "Card(x)") == ()


def test_a_revision_is_checked_out_elsewhere_and_leaves_the_repository_as_it_was(made):
    made.write("deep/x.py", "committed")
    made.commit("two")
    made.write("deep/x.py", "changed")
    before = made.state
    with repository.checkout(made.folder, "HEAD") as tree:
        assert (tree / "deep" / "x.py").read_text() == "committed"
        assert (tree / "small.py").exists()
        assert made.state == before
    assert not tree.exists()
    with (
        pytest.raises(CannotRun, match="git read-tree failed: "),
        repository.checkout(made.folder, "nowhere"),
    ):
        pass


def test_a_checkout_can_be_described_by_its_tags(made):
    made.git("tag", "v1.0")
    made.commit("two")
    made.commit("three")
    made.git("tag", "v9.0")
    with repository.checkout(made.folder, "HEAD~1") as tree:
        repository.add_history(made.folder, made.git("rev-parse", "HEAD~1").strip(), tree)
        assert repository.git("describe", "--tags", cwd=tree).startswith("v1.0-1-g")
        assert repository.git("status", "--porcelain", cwd=tree) == ""


def test_submodules_are_written_into_a_checkout_as_far_as_their_commits_are_here(made, tmp_path):
    inner = Repository(tmp_path / "inner")
    allowed = ("-c", "protocol.file.allow=always")
    made.git(*allowed, "submodule", "--quiet", "add", str(inner.folder), "sub")
    made.commit("with a submodule")
    with repository.checkout(made.folder, "HEAD") as tree:
        assert not (tree / "sub" / "small.py").exists()
        assert repository.write_submodules(made.folder, "HEAD", tree) == ()
        assert (tree / "sub" / "small.py").exists()
    absent = f"160000,{'1' * 40},sub"
    made.git("update-index", "--cacheinfo", absent)
    made.git("commit", "--quiet", "-m", "a commit that is not here")
    with repository.checkout(made.folder, "HEAD") as tree:
        assert repository.write_submodules(made.folder, "HEAD", tree) == ("sub",)
