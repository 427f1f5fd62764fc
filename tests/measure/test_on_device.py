"""What a worker does happens on the device of the case, and leaves none of its memory behind."""

from unittest.mock import Mock

import pytest
import torch

from attnbench.catalogue.registry import card
from attnbench.devices import nvml
from attnbench.devices.kinds.cuda import Cuda
from attnbench.devices.protocol import Unavailable
from attnbench.measure import environment
from attnbench.measure.worker import Worker
from tests.measure.cases import answered, case, sent

MIB = 1 << 20


@pytest.fixture
def gpu(emulated_gpu, monkeypatch):
    """An emulated GPU of which NVML tells nothing, and whose memory is counted from now on."""
    torch.cuda.reset_peak_memory_stats()
    monkeypatch.setattr(nvml, "process_bytes", Mock(side_effect=Unavailable("hidden")))
    return emulated_gpu


def asked(**sizes):
    return sent(case(**sizes))


@pytest.mark.parametrize("do", ["build", "measure_memory"])
def test_a_case_is_on_the_card_that_it_names(gpu, do):
    before = torch.cuda.memory_allocated(0)
    answered(
        Worker(None, seed=0, measures_memory=do == "measure_memory"), do, **asked(device="cuda:1")
    )
    assert torch.cuda.max_memory_allocated(1) > 0
    assert torch.cuda.memory_allocated(0) <= before


def test_what_a_case_reserved_is_given_back(gpu):
    sizes = asked(device="cuda", batch=1, seq_len=1024, heads=4)  # 16 MiB of scores
    before = torch.cuda.memory_reserved()
    timing = Worker(None, seed=0)
    answered(timing, "build", **sizes)
    assert torch.cuda.memory_reserved() > before + 16 * MIB
    answered(timing, "finish")
    assert torch.cuda.memory_reserved() < before + 8 * MIB
    answered(Worker(None, seed=0, measures_memory=True), "measure_memory", **sizes)
    assert torch.cuda.max_memory_reserved() > before + 16 * MIB
    assert torch.cuda.memory_reserved() < before + 8 * MIB


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_memory_takes_a_process_for_each_case_and_counts_one_that_nothing_has_changed(
    gpu, device, monkeypatch
):
    def spent(**more):
        worker = Worker(None, seed=0, measures_memory=True)
        return answered(worker, "measure_memory", **more, **asked(device=device))[
            "needs_new_process"
        ]

    assert spent()
    assert not spent(checked=True)
    eager = card("transformer").forms["eager"]
    attend = eager.attend

    def changes(self, *args):
        torch.set_float32_matmul_precision("high")
        return attend(self, *args)

    monkeypatch.setattr(eager, "attend", changes)
    try:
        assert spent(checked=True)
    finally:
        torch.set_float32_matmul_precision("highest")


def test_free_memory_is_read_before_the_peaks_take_any_and_they_give_it_back(gpu, monkeypatch):
    monkeypatch.setattr(environment, "PEAK_S", 0.0)
    monkeypatch.setattr(Cuda, "copy_elements", 16 * MIB // 4)
    monkeypatch.setattr(Cuda, "title", lambda self: "Emulated GPU")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    free, _ = torch.cuda.mem_get_info()
    found = environment.environment("cuda", 1, ("float32",))
    assert torch.cuda.max_memory_reserved() >= 32 * MIB
    assert found.device_memory_bytes == free == torch.cuda.mem_get_info()[0]
