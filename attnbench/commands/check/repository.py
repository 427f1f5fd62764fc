"""A repository as git describes it: a revision in a temporary folder, and files that differ."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnbench.errors import CannotRun, UsageError
from attnbench.records import storage
from attnbench.running.pool import HOOK_VARIABLES

SUBMODULE = "160000"  # the mode of an entry


@dataclass(frozen=True, kw_only=True)
class Base:
    """The commit that is measured as base.

    Where the revision is no ancestor of the working tree, that is their merge base, so that what
    others have changed since counts for neither side; `notes` say so.
    """

    commit: str
    text: str
    notes: tuple[str, ...] = ()


def git(
    *arguments: str, check: bool = True, index: Path | None = None, **process_options: Any
) -> str:
    """The output of git. Raises `CannotRun` with the message of git.

    arguments: after `git`.
    check: whether an exit code other than 0 is an error.
    index: a file that git uses in place of the repository's own index.
    process_options: of `subprocess.run`.
    """
    environment = {name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES}
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    command = ["git", "-c", "core.quotePath=false", *arguments]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, check=False, **process_options
        )
    except subprocess.TimeoutExpired as error:
        raise CannotRun(f"git {arguments[0]} took longer than --budget allows; raise it") from error
    except FileNotFoundError as error:
        raise CannotRun("comparing revisions needs git, which is not installed") from error
    if check and done.returncode:
        _, _, reason = " ".join(done.stderr.decode(errors="replace").split()).rpartition("fatal: ")
        raise CannotRun(f"git {arguments[0]} failed: {reason or 'no reason given'}")
    return str(done.stdout, errors="surrogateescape")


def root(folder: Path) -> Path:
    """The top folder of the repository. Raises `UsageError` outside of one."""
    try:
        return Path(git("rev-parse", "--show-toplevel", cwd=folder).rstrip("\n"))
    except CannotRun as error:
        raise UsageError(
            f"'{folder}' is not in the working tree of a git repository; {error}"
        ) from error


def top(folder: Path) -> Path:
    """The repository's top folder, or the folder itself outside of a repository."""
    try:
        return root(folder)
    except UsageError:
        return folder


def base(repository: Path, revision: str) -> Base:
    """What is measured as base for a revision.

    Raises `UsageError` saying how to get what is missing.
    """
    revision_commit = commit(repository, revision)
    named = f"{revision} ({revision_commit[:10]})"
    if not git("rev-parse", "--verify", "--quiet", "HEAD", cwd=repository, check=False):
        return Base(commit=revision_commit, text=named)  # there is no history yet
    common = git("merge-base", "HEAD", revision_commit, cwd=repository, check=False).strip()
    if common == revision_commit:
        return Base(commit=revision_commit, text=named)
    if common:
        note = (
            f"{named} is no ancestor of this working tree, so base is their merge base"
            f" {common[:10]}: what {revision} has changed since counts for neither side"
        )
        text = f"{common[:10]}, the merge base with {named}"
        return Base(commit=common, text=text, notes=(note,))
    if is_shallow(repository):
        raise UsageError(
            f"this clone is shallow and lacks the merge base of --base {revision!r} and the"
            " working tree; get it with git fetch --unshallow, or git fetch --deepen=100 where"
            " they parted lately; in actions/checkout, fetch-depth: 0"
        )
    note = f"{named} and this working tree have no common ancestor; it is measured as it is"
    return Base(commit=revision_commit, text=named, notes=(note,))


def commit(repository: Path, revision: str) -> str:
    """The full hash of a commit. Raises `UsageError` saying how to get a missing one."""
    if not revision.strip():
        raise UsageError(
            "--base is empty: give a branch, tag or commit, such as origin/main; where it comes"
            " from a variable, that is not set"
        )
    arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}")
    if "\0" not in revision and (name := git(*arguments, cwd=repository, check=False).strip()):
        return name
    hint = "give a branch, tag or commit of this repository, or fetch it first"
    if is_shallow(repository):
        hint = (
            "this clone is shallow: get it with git fetch --unshallow; in actions/checkout,"
            " fetch-depth: 0"
        )
    raise UsageError(f"--base {revision!r} is not a commit of this repository; {hint}")


def is_shallow(repository: Path) -> bool:
    """Whether the clone lacks a part of its history."""
    output = git("rev-parse", "--is-shallow-repository", cwd=repository, check=False)
    return output.strip() == "true"


def tree_text(repository: Path) -> str:
    """The working tree in words: its commit, and whether it has uncommitted changes."""
    name = git("rev-parse", "--short", "HEAD", cwd=repository, check=False).strip() or "no commit"
    dirty = git("status", "--porcelain", cwd=repository).strip()
    return f"the working tree at {name}" + (" with uncommitted changes" if dirty else "")


def changes(repository: Path, base: str) -> tuple[str, ...]:
    """Files that differ between base and the working tree, without those that git ignores."""
    differing = git("diff", "--name-only", "--no-renames", "-z", base, "--", cwd=repository)
    added = git("ls-files", "--others", "--exclude-standard", "-z", cwd=repository)
    return tuple(dict.fromkeys(filter(None, (differing + added).split("\0"))))


def ignored_paths(repository: Path, paths: Sequence[str]) -> tuple[str, ...]:
    """Which of these paths, relative to the repository, git ignores."""
    if not paths:
        return ()
    names = "\0".join(paths).encode(errors="surrogateescape")
    output = git("check-ignore", "-z", "--stdin", cwd=repository, check=False, input=names)
    return tuple(filter(None, output.split("\0")))


def files_with(tree: Path, text: str) -> tuple[str, ...]:
    """Python files below the tree that hold the text, without those that git ignores."""
    # a user's settings may colour names
    plain = ("grep", "--no-color", "--no-index", "--exclude-standard")
    output = git(*plain, "-lz", "-F", "-e", text, "--", "*.py", cwd=tree, check=False)
    return tuple(filter(None, output.split("\0")))


@contextmanager
def checkout(repository: Path, revision: str, timeout_s: float | None = None) -> Iterator[Path]:
    """The files of the revision in a temporary folder; the repository does not change.

    Raises `CannotRun` if they cannot be checked out, or not within `timeout_s`.
    """
    with storage.TemporaryFolder() as scratch:
        tree = scratch / "tree"
        tree.mkdir()
        write_files(repository, revision, tree, timeout_s)
        yield tree


def write_files(
    repository: Path, revision: str, tree: Path, timeout_s: float | None = None
) -> None:
    """Write the files of a revision into a folder.

    repository: the folder of the repository.
    revision: a commit.
    tree: the folder that is written into.
    timeout_s: how long git may take for each step; None: as long as it needs.
    Raises `CannotRun`.
    """
    with storage.TemporaryFolder() as scratch:
        options: dict[str, Any] = {
            "cwd": repository,
            "timeout": timeout_s,
            "index": scratch / "index",
        }
        git("read-tree", "--no-sparse-checkout", revision, **options)
        git("checkout-index", "--all", f"--prefix={tree}/", **options)


def write_submodules(
    repository: Path, revision: str, tree: Path, timeout_s: float | None = None
) -> tuple[str, ...]:
    """Write the files of a revision's submodules into a checkout of it, as far as they are here.

    Those that the working tree has not checked out stay empty on both sides. Returns the paths of
    those whose commit is missing.

    repository: the folder of the repository.
    revision: a commit.
    tree: the checkout.
    timeout_s: how long git may take for each step; None: as long as it needs.
    """
    missing = list[str]()
    for entry in git("ls-tree", "-rz", "--full-tree", revision, cwd=repository).split("\0"):
        about, _, path = entry.partition("\t")
        mode, _, name = about.replace(" commit ", " ").partition(" ")
        submodule = repository / path
        if mode != SUBMODULE or not (submodule / ".git").exists():
            continue
        if not git(
            "rev-parse", "--verify", "--quiet", name + "^{commit}", cwd=submodule, check=False
        ):
            missing.append(path)
            continue
        write_files(submodule, name, tree / path, timeout_s)
        inner = write_submodules(submodule, name, tree / path, timeout_s)
        missing += [f"{path}/{each}" for each in inner]
    return tuple(missing)


def add_history(repository: Path, revision: str, tree: Path) -> None:
    """Let git describe a checkout, as tools that build a version from tags ask it to.

    The checkout becomes a repository that borrows the objects of this one.
    """
    common = git("rev-parse", "--path-format=absolute", "--git-common-dir", cwd=repository)
    folder = Path(common.rstrip("\n"))
    git("init", "--quiet", cwd=tree)
    git_folder = tree / ".git"
    (git_folder / "objects" / "info").mkdir(parents=True, exist_ok=True)
    (git_folder / "objects" / "info" / "alternates").write_text(f"{folder / 'objects'}\n")
    if (folder / "shallow").is_file():
        (git_folder / "shallow").write_bytes((folder / "shallow").read_bytes())
    tags = git(
        *("for-each-ref", "--merged", revision, "--format=create %(refname) %(objectname)"),
        "refs/tags",
        cwd=repository,
        check=False,
    )
    git("update-ref", "--no-deref", "HEAD", revision, cwd=tree)
    git("update-ref", "--stdin", cwd=tree, input=tags.encode(errors="surrogateescape"))
    git("read-tree", revision, cwd=tree)
