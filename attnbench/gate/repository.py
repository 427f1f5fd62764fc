"""A repository as git describes it: a revision in a temporary folder, and files that differ."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attnbench.errors import CannotRun, UsageError
from attnbench.run.pool import HOOK_VARIABLES
from attnbench.store.temporary import TemporaryFolder


def git(*arguments: str, check: bool = True, index: Path | None = None, **how: Any) -> str:
    """The output of git, run as `how` says. Raises `CannotRun` with the message of git.

    With an `index`, git uses this file in place of the repository's own.
    """
    environment = {name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES}
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    command = ["git", "-c", "core.quotePath=false", *arguments]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, check=False, **how)
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


def commit(repository: Path, revision: str) -> str:
    """The full hash of a commit. Raises `UsageError` saying how to get a missing one."""
    arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}")
    if name := git(*arguments, cwd=repository, check=False).strip():
        return name
    hint = "give a branch, tag or commit of this repository, or fetch it first"
    if git("rev-parse", "--is-shallow-repository", cwd=repository, check=False).strip() == "true":
        hint = "this clone is shallow: fetch it first, e.g. actions/checkout with fetch-depth: 0"
    raise UsageError(f"--base {revision!r} is not a commit of this repository; {hint}")


def describe(repository: Path) -> str:
    """The working tree in words: its commit, and whether it has uncommitted changes."""
    name = git("rev-parse", "--short", "HEAD", cwd=repository, check=False).strip() or "no commit"
    dirty = git("status", "--porcelain", cwd=repository).strip()
    return f"the working tree at {name}" + (" with uncommitted changes" if dirty else "")


def changes(repository: Path, base: str) -> tuple[str, ...]:
    """Files that differ between base and the working tree, without those that git ignores."""
    differing = git("diff", "--name-only", "--no-renames", "-z", base, "--", cwd=repository)
    added = git("ls-files", "--others", "--exclude-standard", "-z", cwd=repository)
    return tuple(dict.fromkeys(filter(None, (differing + added).split("\0"))))


def files_with(tree: Path, text: str) -> tuple[str, ...]:
    """Python files below the tree that hold the text, without those that git ignores."""
    # a user's settings may colour names
    plain = ("grep", "--no-color", "--no-index", "--exclude-standard")
    found = git(*plain, "-lz", "-F", "-e", text, "--", "*.py", cwd=tree, check=False)
    return tuple(filter(None, found.split("\0")))


@contextmanager
def checkout(repository: Path, revision: str, timeout_s: float | None = None) -> Iterator[Path]:
    """The files of the revision in a temporary folder; the repository does not change.

    Raises `CannotRun` if they cannot be checked out, or not within `timeout_s`.
    """
    with TemporaryFolder() as scratch:
        tree, index = scratch / "tree", scratch / "index"
        tree.mkdir()
        how: dict[str, Any] = {"cwd": repository, "timeout": timeout_s, "index": index}
        git("read-tree", "--no-sparse-checkout", revision, **how)
        git("checkout-index", "--all", f"--prefix={tree}/", **how)
        yield tree
