"""Mechanism files that do harm when imported, or whose cards do harm when read."""

import os
from dataclasses import replace
from pathlib import Path

from attnbench.attention.contract import Attention, Flops
from attnbench.mechanisms.fastformer import CARD as GOOD

# the complete text of each file
AT_IMPORT = {
    "leaves": "import os; os._exit(0)",
    "dies": "import os; os.kill(os.getpid(), 9)",
    "segfaults": "import os; os.kill(os.getpid(), 11)",
    "loops": "while True: pass",
    "sleeps": "import time; time.sleep(3600)",
    "exits": "import sys; sys.exit(0)",
    "interrupts": "raise KeyboardInterrupt",
    "raises": "raise RuntimeError('one\\nand two')",
    "closes": "import os; os.closerange(3, 200)",
    "shouts": "print('\\x1b[2J' * 100000); import os; os._exit(0)",
}


def leave(*_: object) -> object:
    os._exit(0)


def loop(*_: object) -> object:
    while True:
        pass


class Leaves(Attention):
    flops = staticmethod(leave)


class Halves(Attention):
    @staticmethod
    def flops(config, workload):
        return Flops(0.5, 1)

    @staticmethod
    def elements(config, workload):
        return 1


DEFAULT_LEAVES = replace(GOOD, default=leave)
DEFAULT_LOOPS = replace(GOOD, default=loop)
DEFAULT_UNKNOWN = replace(GOOD, default=lambda config, workload: "fused")
DEFAULT_RAISES = replace(GOOD, default=lambda config, workload: 1 / 0)
NEEDS_LEAVES = replace(GOOD, needs=leave)
NEEDS_EXITS = replace(GOOD, needs=lambda config, workload: exit(3))
NEEDS_ODD = replace(GOOD, needs=lambda config, workload: Path)
FLOPS_LEAVE = replace(GOOD, forms={"eager": Leaves})
FLOPS_HALVE = replace(GOOD, forms={"eager": Halves})
PARAMETERS_LOOP = replace(GOOD, parameters=loop)
