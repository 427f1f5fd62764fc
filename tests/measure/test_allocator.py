"""Which freed pages a measuring process keeps."""

import subprocess
import sys

SCRIPT = """
import resource
import torch
from attnbench.measure import allocator

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

allocator.keep_pages()
before = allocator.private_bytes()
tensor = torch.ones(64 << 18)
held = allocator.private_bytes() - before
del tensor
kept = allocator.private_bytes() - before
tensor, before = torch.ones(64 << 18), faults()
allocator.map_ahead()
mapped = faults()
torch.ones(16 << 18)
print(held >> 20, kept >> 20, mapped - before, faults() - mapped)
"""


def test_freed_pages_are_kept_and_those_mapped_ahead_do_not_fault_later():
    found = subprocess.check_output([sys.executable, "-c", SCRIPT]).split()
    held, kept, mapped, later = map(int, found)
    assert held in range(63, 70)
    assert kept in range(63, 70)
    assert later < 99 < 4096 < mapped
