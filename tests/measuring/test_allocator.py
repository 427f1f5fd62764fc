"""Pages that a measuring process keeps, gives back, and maps ahead."""

import subprocess
import sys

import pytest

from attnbench.measuring import allocator

SCRIPT = """
import resource
import torch
from attnbench.measuring import allocator
from attnbench.measuring.answering import failure

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


@pytest.mark.long
def test_freed_pages_are_kept_and_those_mapped_ahead_do_not_fault_later():
    found = subprocess.check_output([sys.executable, "-c", SCRIPT]).split()
    held, kept, mapped, later = map(int, found)
    assert held in range(63, 70)
    assert kept in range(63, 70)
    assert later < 99 < 4096 < mapped


@pytest.mark.parametrize(
    ("private", "mapped"), [(0, 0), (1000, 300), (1 << 40, allocator.MOST_AHEAD)]
)
def test_a_share_of_what_is_mapped_is_mapped_ahead_up_to_a_limit(private, mapped, monkeypatch):
    asked = []
    monkeypatch.setattr(allocator, "private_bytes", lambda: private)
    monkeypatch.setattr(allocator, "bytearray", asked.append, raising=False)
    allocator.map_ahead()
    assert asked == [mapped]


def test_where_no_memory_is_left_none_is_mapped_ahead(monkeypatch):
    def refuse(size):
        raise MemoryError

    monkeypatch.setattr(allocator, "bytearray", refuse, raising=False)
    allocator.map_ahead()
