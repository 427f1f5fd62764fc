"""Which freed pages a measuring process keeps."""

import subprocess
import sys

import pytest

SCRIPT = """
import torch
from attnbench.measure import allocator
allocator.keep_pages()
before = allocator.private_bytes()
tensor = torch.ones(64 << 18)
held = allocator.private_bytes() - before
del tensor
print(held >> 20, (allocator.private_bytes() - before) >> 20)
"""


AHEAD = """
import resource
import torch
from attnbench.measure import allocator

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

allocator.keep_pages()
kept = torch.ones(64 << 18)
before = faults()
allocator.map_ahead()
mapped = faults()
torch.ones(16 << 18)
print(mapped - before, faults() - mapped)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what is resident")
def test_large_freed_tensors_are_kept():
    held, kept = map(int, subprocess.check_output([sys.executable, "-c", SCRIPT]).split())
    assert held in range(63, 70)
    assert kept in range(63, 70)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how pages are mapped")
def test_pages_mapped_ahead_do_not_fault_later():
    mapped, later = map(int, subprocess.check_output([sys.executable, "-c", AHEAD]).split())
    assert later < 99 < 4096 < mapped
