"""Which freed pages a measuring process keeps."""

import subprocess
import sys

import pytest

SCRIPT = """
import torch
from attnbench.measure import allocator
allocator.keep_pages(large={large})
before = allocator.private_bytes()
tensor = torch.ones(64 << 18)
held = allocator.private_bytes() - before
del tensor
print(held >> 20, (allocator.private_bytes() - before) >> 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what is resident")
@pytest.mark.parametrize("large", [True, False])
def test_large_freed_tensors_are_kept_unless_they_must_not(large):
    script = [sys.executable, "-c", SCRIPT.format(large=large)]
    held, kept = map(int, subprocess.check_output(script, text=True).split())
    assert held in range(63, 70)
    assert kept in (range(63, 70) if large else range(3))
