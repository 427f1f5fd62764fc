"""Mechanism files that do harm when imported, or whose cards do harm when read."""

import os
from dataclasses import replace
from pathlib import Path

from attnbench.attention.contract import Attention
from attnbench.mechanisms.fastformer import CARD as GOOD

# the complete text of each file
AT_IMPORT = {
    "leaves": "import os; os._exit(0)",
    "segfaults": "import os; os.kill(os.getpid(), 11)",
    "loops": "while True: pass",
    "exits": "import sys; sys.exit(0)",
    "raises": "raise RuntimeError('one\\nand two')",
    "shouts": "print('\\x1b[2J' * 100000); import os; os._exit(0)",
}


def leave(*_: object) -> object:
    os._exit(0)


def loop(*_: object) -> object:
    while True:
        pass


class Leaves(Attention):
    flops = staticmethod(leave)


DEFAULT_LOOPS = replace(GOOD, default=loop)
DEFAULT_UNKNOWN = replace(GOOD, default=lambda config, workload: "fused")
DEFAULT_RAISES = replace(GOOD, default=lambda config, workload: 1 / 0)
NEEDS_LEAVES = replace(GOOD, needs=leave)
NEEDS_ODD = replace(GOOD, needs=lambda config, workload: Path)
FLOPS_LEAVE = replace(GOOD, forms={"eager": Leaves})
