"""How libraries say that memory ran out, and how a GPU does that broke."""

import pytest
import torch

from attnbench.devices.out_of_memory import (
    DeviceFailed,
    is_out_of_memory,
    raise_device_failure,
)
from attnbench.measuring.answering import failure
from attnbench.records import Outcome

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
