"""The allocator stays as it is in the process that runs the tests; a GPU that does not exist."""

import gc

import pytest

from attnbench.devices import system


@pytest.fixture(autouse=True)
def usual_allocator(monkeypatch):
    monkeypatch.setattr(system, "mallopt", lambda parameter, value: None)
    monkeypatch.setattr(system, "prctl", lambda option, value: None)


@pytest.fixture
def emulated_gpu(monkeypatch):
    """`torch.cuda` emulated in this process, without NVML and its driver."""
    import torch

    from attnbench.devices import cuda_timing as stopwatch
    from attnbench.devices.kinds import cuda
    from tests.emulated.startup.emulated_cuda import adapt, emulate, time_by

    gc.collect()  # tensors of other tests would be counted, and freed at any time
    memory = emulate(torch, monkeypatch.setattr)
    adapt(cuda, monkeypatch.setattr)
    time_by(stopwatch, monkeypatch.setattr)
    monkeypatch.setattr(cuda.Cuda, "uuid", lambda self: "GPU-0")
    yield memory
    memory.end()
