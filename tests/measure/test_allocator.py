"""Which freed pages a measuring process keeps."""

import subprocess
import sys
from pathlib import Path

import pytest

from attnbench.run.processes import environment

SCRIPT = """
import torch
from attnbench.measure import allocator
for large in (False, True):
    allocator.keep_pages(large=large)
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
def test_large_freed_tensors_are_kept_unless_they_must_not():
    said = subprocess.check_output([sys.executable, "-c", SCRIPT], text=True)
    for line, after in zip(said.splitlines(), (range(3), range(63, 70)), strict=True):
        held, kept = map(int, line.split())
        assert held in range(63, 70)
        assert kept in after


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how pages are mapped")
def test_pages_mapped_ahead_do_not_fault_later():
    mapped, later = map(int, subprocess.check_output([sys.executable, "-c", AHEAD]).split())
    assert later < 99 < 4096 < mapped


HUGE = """
import re, sys
from pathlib import Path
import torch
from attnbench.measure import allocator

def huge():
    said = Path("/proc/self/smaps_rollup").read_text()
    return int(re.search("AnonHugePages: +([0-9]+)", said)[1])

allocator.keep_pages(huge=sys.argv[1] == "huge")
before = huge()
kept = torch.ones(64 << 18)
print(huge() - before)
"""
ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not ENABLED.exists() or "[never]" in ENABLED.read_text(), reason="the system has no huge pages"
)
def test_huge_pages_are_used_where_they_are_wanted():
    here = environment(1, Path("unused"))
    said = [
        int(subprocess.check_output([sys.executable, "-c", HUGE, pages], text=True, env=here))
        for pages in ("huge", "small")
    ]
    assert said[0] > 32 << 10
    assert said[1] == 0
