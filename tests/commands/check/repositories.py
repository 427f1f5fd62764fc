"""Throw-away git repositories that hold one small mechanism in a file."""

import subprocess
from pathlib import Path

MECHANISM = '''"""A small attention for tests."""

from dataclasses import dataclass

import torch

from attnbench import attention as at


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """None."""


class Small(at.QKVAttention):
    def attend(self, q, k, v, mask):
        weights = (q @ k.mT).softmax(-1)
        # here
        return weights @ v

    @staticmethod
    def flops(config, w):
        return at.Flops(at.projection_flops(w), 4 * w.tokens * w.seq_len * w.width)

    @staticmethod
    def elements(config, w):
        return w.batch * w.heads * w.seq_len**2


CARD = at.Card(
    forms={"eager": Small},
    config=Config,
    reference=lambda module, x, mask, draws: x,
    parameters=at.projection_parameters,
    family=at.Family.FULL,
    causality=at.Causality.NEVER,
    paper=at.Paper("Small", "Nobody", 2000, "none"),
    cost=at.Cost("O(N)", time=1, memory=1),
    examples=(Config(),),
)
'''


def planted(line):
    """The mechanism with a further line in `attend`."""
    return MECHANISM.replace("# here", line)


class Repository:
    """A repository with the mechanism committed as `small.py`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {}  # of commands that are run in it
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", "--initial-branch=main")
        self.write("small.py", MECHANISM)
        self.commit("one")

    def git(self, *arguments):
        who = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org")
        done = subprocess.run(
            ["git", *who, *arguments], cwd=self.folder, capture_output=True, text=True, check=True
        )
        return done.stdout

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self, message):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)

    @property
    def state(self):
        """Everything that a check must leave as it was."""
        return (
            self.git("status", "--porcelain", "--ignored"),
            self.git("worktree", "list", "--porcelain"),
            self.git("stash", "list"),
            self.git("for-each-ref"),
            sorted(path.name for path in (self.folder / ".git").iterdir()),
        )
