"""What peaks miss is said: arrays of numpy, what threads of its own allocate, and anything else."""

import re
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from attnbench.measuring.causality import is_of_others
from attnbench.measuring.subject import subject_of
from attnbench.measuring.uncounted import NUMPY, Arrays, Threads, missed_text
from attnbench.measuring.worker import Worker
from attnbench.mechanisms.catalogue.registry import card, names
from attnbench.records import PASSES
from tests.measuring.cases import answered, case, sent

MODULES = """
import ctypes
import mmap
import threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import torch
from torch import nn


class Plain(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.value = nn.Linear(width, width)

    def forward(self, x):
        return self.value(x) + self.rest(x)

    def rest(self, x):
        return x.mean(1, keepdim=True)


class Numpy(Plain):
    def rest(self, x):
        x = x.detach().numpy()
        scores = np.exp(np.matmul(x, x.transpose(0, 2, 1)) / 100)
        return torch.from_numpy(np.matmul(scores, x))


class Pool(Plain):
    pool = None

    def rest(self, x):
        self.pool = self.pool or ThreadPoolExecutor(1)
        with torch.no_grad():
            return self.pool.submit(self.part, x).result()

    def part(self, x):
        return (x @ x.transpose(1, 2)).softmax(-1) @ x


class Outside(Plain):
    def rest(self, x):
        numbers = torch.frombuffer(self.memory(), dtype=torch.float32).fill_(1.0)
        return x.mean(1, keepdim=True) * numbers[:1]


class Python(Outside):
    def memory(self):
        return bytearray(8 << 20)


class Mapped(Outside):
    def memory(self):
        return mmap.mmap(-1, 8 << 20)


class OfC(Outside):
    def memory(self):
        return (ctypes.c_float * (2 << 20))()


class Waits(Plain):
    def rest(self, x):
        threading.Thread(target=threading.Event().wait, args=[0.001]).start()
        return super().rest(x)
"""


@pytest.fixture
def modules(tmp_path):
    file = tmp_path / "modules.py"
    file.write_text(MODULES)
    return file


@pytest.mark.parametrize("mode", PASSES)
@pytest.mark.parametrize(
    ("name", "uncounted"),
    [
        ("Plain", ""),
        ("Waits", ""),
        ("Python", "buffers of Python of at least 8.000 MiB at once"),
        ("OfC", "buffers of Python of at least 8.000 MiB at once"),
        ("Mapped", "about # MiB by which its process grew beside them"),
        ("Pool", "what 1 thread of its own allocated"),
        ("Numpy", "numpy arrays of at least 144.0 KiB at once"),  # 2 · 128² scores, and output
    ],
)
def test_memory_that_peaks_miss_is_said(name, uncounted, mode, modules):
    one = case(f"{modules}:{name}", seq_len=128, mode=mode)
    worker = Worker(None, seed=0, measures_memory=True)
    notes = answered(worker, "measure_memory", **sent(one))["notes"]
    assert re.sub(r"(?<=about )[6-8]\.[0-9]+", "#", notes.get("uncounted", "")) == uncounted


def test_the_domain_is_that_of_numpy():
    assert np.lib.tracemalloc_domain == NUMPY


def test_arrays_are_seen_while_they_live_and_nothing_of_torch_or_python_is():
    def iterate(lap):
        torch.ones(1000, 1000).sum()
        bytearray(10**6)
        len_of(np.ones(10**5))
        len_of(np.ones(10**4))

    def len_of(array):
        return len(array)

    arrays = Arrays()
    arrays.run(iterate)
    assert 8 * 10**5 <= arrays.most_bytes <= 8 * 10**5 + 10**4
    assert not tracemalloc.is_tracing()


def test_threads_are_those_that_start_within_and_use_tensors():
    threads, x = Threads(), torch.ones(3)
    with ThreadPoolExecutor(1) as before:
        before.submit(len, "").result()
        with threads.watch():
            before.submit(torch.sum, x).result()
            for work in (lambda: len("x"), lambda: x.sum(), lambda: x + 1):
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
    assert missed_text(Arrays(), threads) == "what 2 threads of its own allocated"


@pytest.mark.parametrize("name", names())
def test_no_mechanism_of_this_package_holds_numbers_outside_of_torch(name):
    """By the same look, which they are spared in a sweep."""
    own = card(name)
    refused = own.refusal("eager", own.configure({}), case(seq_len=128).workload)
    one = case(name, seq_len=128, causal=bool(refused))
    assert not is_of_others(own, one)
    arrays, threads = Arrays(), Threads()
    with threads.watch():
        subject = subject_of(own, one, seed=0)
        arrays.run(subject.iteration())
    assert missed_text(arrays, threads) == ""
