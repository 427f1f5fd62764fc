"""How a worker reads errors, and samples that cannot be."""

from dataclasses import asdict

import pytest
import torch

from attnbench.devices.protocol import Meter
from attnbench.devices.timing import HostStopwatch
from attnbench.measure import allocator
from attnbench.measure.server import is_out_of_memory
from attnbench.measure.worker import Worker
from attnbench.mechanisms.fastformer import Fastformer
from attnbench.records import PASSES
from tests.measure.cases import answered, case, sent, timing

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


def test_the_reason_of_a_failure_is_the_first_line_of_its_error():
    class Broken(Worker):
        def forms(self):
            raise ValueError("\nno such head\nthe heads are 0 to 3\n")

    answer = Broken(None, seed=0).answer("forms")
    assert answer == {"outcome": "failed", "reason": "ValueError: no such head"}


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
