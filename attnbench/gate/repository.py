"""A repository as git describes it: a revision in a temporary folder, and files that differ."""

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from attnbench.errors import CannotRun, UsageError
from attnbench.run.pool import HOOK_VARIABLES
from attnbench.run.scratch import PREFIX, Scratch

TREE = "tree"  # the worktree's folder inside a scratch folder

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A file that differs; one of the paths is None where a side has no such file."""

    base: str | None
    head: str | None

    @property
    def paths(self) -> tuple[str, ...]:
        """Its paths, that on head last."""
        return tuple(path for path in (self.base, self.head) if path)


def git(*arguments: str, cwd: Path, check: bool = True, timeout_s: float | None = None) -> str:
    """The output of git. Raises `CannotRun` with the message of git, or if it takes too long."""
    environment = {name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES}
    # the hooks of the repository are not meant for a temporary worktree
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            capture_output=True,
            check=False,
            start_new_session=True,  # Ctrl-C must not stop git from cleaning up
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise CannotRun(f"git {arguments[0]} took longer than --budget allows; raise it") from error
    except FileNotFoundError as error:
        raise CannotRun("comparing revisions needs git, which is not installed") from error
    if check and done.returncode:
        _, _, reason = " ".join(done.stderr.decode(errors="replace").split()).rpartition("fatal: ")
        raise CannotRun(f"git {arguments[0]} failed: {reason or 'no reason given'}")
    return done.stdout.decode(errors="surrogateescape")


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
    except (UsageError, CannotRun):
        return folder


def commit(repository: Path, revision: str) -> str:
    """The full hash of a commit. Raises `UsageError` saying how to get a missing one."""
    arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}")
    if name := git(*arguments, cwd=repository, check=False).strip():
        return name
    shallow = git("rev-parse", "--is-shallow-repository", cwd=repository, check=False).strip()
    hint = (
        "this clone is shallow: fetch it first, e.g. actions/checkout with fetch-depth: 0"
        if shallow == "true"
        else "give a branch, tag or commit of this repository, or fetch it first"
    )
    raise UsageError(f"--base {revision!r} is not a commit of this repository; {hint}")


def describe(repository: Path) -> str:
    """The working tree in words: its commit, and whether it has uncommitted changes."""
    name = git("rev-parse", "--short", "HEAD", cwd=repository, check=False).strip() or "no commit"
    dirty = git("status", "--porcelain", cwd=repository).strip()
    return f"the working tree at {name}" + (" with uncommitted changes" if dirty else "")


def changes(repository: Path, base: str) -> tuple[Change, ...]:
    """Files of the working tree that differ from base, without those that git ignores."""
    listed = git("diff", "--name-status", "--find-renames", "-z", base, "--", cwd=repository)
    words = iter(listed.split("\0"))
    differing = []
    for status in filter(None, words):
        old = next(words)
        new = next(words) if status[0] in "RC" else old  # renamed or copied
        base_path = None if status[0] in "AC" else old
        differing.append(Change(base=base_path, head=None if status[0] == "D" else new))
    known = {change.head for change in differing}
    new_files = git("ls-files", "--others", "--exclude-standard", "-z", cwd=repository)
    added = [path for path in new_files.split("\0") if path and path not in known]
    return (*differing, *(Change(base=None, head=path) for path in added))


def files_with(tree: Path, text: str) -> tuple[str, ...]:
    """Python files below the tree that hold the text, without those that git ignores."""
    # a user's settings may colour names, or search submodules, which --untracked excludes
    plain = ("grep", "--no-color", "--no-recurse-submodules", "--untracked")
    found = git(*plain, "-lz", "-F", "-e", text, "--", "*.py", cwd=tree, check=False)
    return tuple(filter(None, found.split("\0")))


@contextmanager
def worktree(repository: Path, revision: str, timeout_s: float | None = None) -> Iterator[Path]:
    """The revision checked out in a temporary folder, which is always removed again.

    Raises `CannotRun` if it cannot be checked out, or not within `timeout_s`.
    """
    scratch = Scratch()
    prune_worktrees(repository)
    tree = scratch.folder / TREE
    try:
        add = ("worktree", "add", "--detach", "--quiet", str(tree), revision)
        git(*add, cwd=repository, timeout_s=timeout_s)
        yield tree
    finally:
        with ignoring_signals():
            remove(repository, tree)
            scratch.close()


def prune_worktrees(repository: Path) -> None:
    """Make git forget worktrees left by killed checks whose folders are gone."""
    # without -z, which needs git 2.36
    listed = git("worktree", "list", "--porcelain", cwd=repository, check=False)
    for line in listed.splitlines():
        tree = Path(line.removeprefix("worktree "))
        ours = line.startswith("worktree ") and tree.name == TREE
        if ours and tree.parent.name.startswith(PREFIX) and not tree.parent.exists():
            remove(repository, tree)


def remove(repository: Path, tree: Path) -> None:
    """Remove a worktree, even one that git has not finished creating."""
    git("worktree", "unlock", str(tree), cwd=repository, check=False)
    git("worktree", "remove", "--force", str(tree), cwd=repository, check=False)
    shutil.rmtree(tree, ignore_errors=True)
    if str(tree) in git("worktree", "list", "--porcelain", cwd=repository, check=False):
        git("worktree", "prune", cwd=repository, check=False)


@contextmanager
def ignoring_signals() -> Iterator[None]:
    """Ignore signals during the block, so that it can finish cleaning up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
