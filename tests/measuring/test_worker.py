"""How a worker builds a case, reads errors and samples that cannot be, and which pages it keeps."""

import subprocess
import sys
from dataclasses import asdict
from itertools import product

import pytest
import torch

from attnbench.devices.out_of_memory import (
    DeviceFailed,
    is_out_of_memory,
    raise_device_failure,
)
from attnbench.devices.protocol import Meter
from attnbench.devices.timing import HostStopwatch
from attnbench.measuring import allocator
from attnbench.measuring.answering import failure
from attnbench.measuring.subject import subject_of
from attnbench.measuring.worker import Worker
from attnbench.mechanisms.catalogue.registry import card
from attnbench.mechanisms.fastformer import Fastformer
from attnbench.records import PASSES, Level, Mode, Outcome
from tests.measuring.cases import answered, case, sent, timing

REFUSED = (
    "[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuFFT error: CUFFT_ALLOC_FAILED",
    "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
    'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "CUDACachingAllocator.cpp":1131, please report',
)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"), *map(RuntimeError, REFUSED)],
    ids=lambda error: str(error)[:40] or type(error).__name__,
)
def test_a_refused_allocation_is_out_of_memory(error):
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"),
        ValueError("out of memory"),
    ],
    ids=str,
)
def test_another_error_is_not(error):
    assert not is_out_of_memory(error)


class BrokenGpu:
    """A GPU whose calls fail: the next few, or all since a kernel read where it must not."""

    def __init__(self, monkeypatch, failures=1 << 30):
        self.left = failures
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "synchronize", self.synchronize)

    def synchronize(self, device=None):
        self.left -= 1
        if self.left >= 0:
            raise RuntimeError(
                "CUDA error: an illegal memory access was encountered\nFor debugging"
            )


@pytest.mark.parametrize(("failures", "refused"), [(1 << 30, False), (1, True), (0, True)])
def test_a_broken_gpu_gives_no_handle_though_there_is_memory(monkeypatch, failures, refused):
    """cuBLAS says the same of both."""
    BrokenGpu(monkeypatch, failures)
    error = RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate`")
    assert is_out_of_memory(error) is refused
    assert is_out_of_memory(RuntimeError("CUDA error: out of memory"))


def test_what_broke_the_gpu_is_said_in_the_words_of_the_gpu_alone(monkeypatch):
    BrokenGpu(monkeypatch)
    with pytest.raises(DeviceFailed) as raised:
        raise_device_failure()
    answer = failure(raised.value)
    assert answer.outcome == Outcome.FAILED
    assert answer.reason == "CUDA error: an illegal memory access was encountered"


def test_the_reason_of_a_failure_is_the_first_line_of_its_error():
    class NoHead(ValueError):
        outcome = "ok"  # a user's exception decides nothing

    class Broken(Worker):
        def lap(self, question):
            raise NoHead("\nno such head\nthe heads are 0 to 3\n")

    answer = Broken(None, seed=0).answer("lap", iterations=1)
    assert (answer["outcome"], answer["reason"]) == ("failed", "NoHead: no such head")


@pytest.mark.parametrize(("warmup_s", "mapped"), [(0.0, 1), (60.0, 0)])
def test_pages_are_mapped_ahead_of_a_case_longer_than_its_warm_up(monkeypatch, warmup_s, mapped):
    calls = []
    monkeypatch.setattr(allocator, "map_ahead", lambda: calls.append(1))
    monkeypatch.setattr("attnbench.devices.timing.is_cold", lambda faults, taken: True)
    asked = {**asdict(case()), "warmup_s": warmup_s, "faulting_s": 0.01}
    answered(Worker(None, seed=0), "build", **asked)
    assert len(calls) == mapped


def test_a_sample_without_time_is_a_failure_and_no_number():
    stopped = HostStopwatch(lambda: 0.0, lambda: 0.0)
    worker = timing(lambda lap: lap("forward"), stopped, Meter(), 1.0)
    answer = worker.answer("lap", iterations=1)
    assert answer["outcome"] == "failed"
    assert "no time" in answer["reason"]


@pytest.mark.parametrize("mode", PASSES)
@pytest.mark.parametrize(("cycles", "noted"), [(0, False), (7, False), (200, True)])
def test_what_iterations_leave_to_the_collector_is_counted(monkeypatch, mode, cycles, noted):
    """It is off while laps run. What only the first iteration leaves does not count."""
    forward, first = Fastformer.forward, [None]

    def littering(self, *inputs):
        for _ in range(cycles + (1000 if first else 0)):
            (cycle := []).append(cycle)
        first.clear()
        return forward(self, *inputs)

    monkeypatch.setattr(Fastformer, "forward", littering)
    tested = case("fastformer", "eager", mode=mode)
    worker = Worker(None, seed=0)
    answered(worker, "build", **sent(tested))
    for iterations in (3, 1):
        answered(worker, "lap", iterations=iterations)
    found = answered(worker, "finish")
    assert found["values"]["garbage"] == cycles
    assert ("garbage" in found["notes"]) == noted
    first.append(None)
    counted = answered(worker, "measure_memory", checked=True, **sent(tested))
    assert counted["values"]["garbage"] == cycles


FORMS = [("transformer", "sdpa"), ("fastformer", "folded"), ("fastformer", "eager")]
CASES = [
    (*form, level)
    for form, level in product(FORMS, Level)
    if (form, level) != (FORMS[1], Level.CORE)  # which it does not have
]


def subject(mechanism, form, **sizes):
    return subject_of(card(mechanism), case(mechanism, form, **sizes), seed=0)


@pytest.mark.parametrize(("mechanism", "form", "level"), CASES)
def test_training_moves_every_parameter(mechanism, form, level):
    one = subject(mechanism, form, level=level, mode=Mode.TRAINING)
    before = [p.detach().clone() for p in one.parameters]
    phases = []
    output = one.iteration()(phases.append)
    assert one.check(output) == ""
    assert phases == ["forward", "backward", "step"][: 2 + bool(one.parameters)]
    for old, new in zip(before, one.parameters, strict=True):
        assert not torch.equal(old, new)
    if level is not Level.MODEL:
        assert all(x.grad is not None for x in one.inputs)
    one.clear()
    assert all(t.grad is None for t in (*one.parameters, *one.inputs))


def test_the_same_seed_gives_the_same_numbers():
    outputs = []
    for seed in (3, 3, 4):
        one = subject_of(card("transformer"), case(level=Level.MODEL), seed)
        outputs.append(one.iteration()(lambda phase: None))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def test_a_wrong_output_is_reported():
    one = subject("transformer", "eager")
    good = one.iteration()(lambda phase: None)
    assert "not finite" in one.check(good.index_fill(1, torch.tensor([0]), float("nan")))
    assert "shape [2, 31, 16]" in one.check(good[:, 1:])
    assert "float64" in one.check(good.double())


def test_the_embedding_is_frozen_and_dropout_is_for_training():
    one = subject("transformer", "eager", level=Level.MODEL, mode=Mode.TRAINING)
    one.iteration()(lambda phase: None)
    assert one.module.embedding.weight.grad is None
    assert one.module.training
    assert not subject("transformer", "eager", level=Level.MODEL).module.training


def test_padding_is_the_share_at_the_end_of_every_sequence():
    mask = subject("transformer", "eager", padding=0.25).mask
    assert mask.tolist() == [[True] * 24 + [False] * 8] * 2


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
