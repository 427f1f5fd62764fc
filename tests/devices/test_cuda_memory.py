"""Memory of an emulated GPU: exact peaks, and that of its process, which NVML may hide.

A worker uses the device of the case, and leaves none of its memory behind.
"""

from unittest.mock import Mock

import pytest
import torch

from attnbench.devices import nvml
from attnbench.devices.cuda_memory import profile_memory
from attnbench.devices.kinds.cuda import Cuda
from attnbench.devices.protocol import Unavailable
from attnbench.measuring import environment
from attnbench.measuring.subject import Subject, subject_of
from attnbench.measuring.worker import Worker
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Level, Mode
from tests.measuring.cases import answered, case, sent

MIB = 1 << 20


def weighed(tested):
    return profile_memory(lambda: subject_of(card(tested.mechanism), tested, seed=0), "GPU-0")


@pytest.fixture
def shown(monkeypatch, emulated_gpu):
    """NVML that shows the process: its context and what torch reserved."""
    context = 500 * MIB

    def process_bytes(uuid):
        return context + emulated_gpu.reserved

    monkeypatch.setattr(nvml, "process_bytes", process_bytes)
    return context


@pytest.fixture
def gpu(emulated_gpu, monkeypatch):
    """An emulated GPU of which NVML tells nothing, and whose memory is counted from now on."""
    torch.cuda.reset_peak_memory_stats()
    monkeypatch.setattr(nvml, "process_bytes", Mock(side_effect=Unavailable("hidden")))
    return emulated_gpu


def test_eager_softmax_core_holds_logits_weights_and_output(shown):
    tested = case(level=Level.CORE, batch=1, heads=4, seq_len=512, width=64, device="cuda")
    values, notes = weighed(tested)
    assert values["context_bytes"] == shown
    assert values["device_process_bytes"] == shown + values["reserved_peak_bytes"]
    tokens, scores = 512 * 64 * 4, 4 * 512**2 * 4
    assert values["allocated_delta_bytes"] == 2 * scores + tokens
    assert values["kept_bytes"] == 0
    assert values["workspace_bytes"] == 0
    assert "nvml" not in notes


def test_where_nvml_hides_the_process_that_is_said(gpu):
    values, notes = weighed(case(seq_len=2048, device="cuda"))
    assert notes["nvml"] == "hidden"
    assert not {"device_process_bytes", "context_bytes"} & values.keys()
    assert values["allocated_delta_bytes"] > 16 * MIB


def test_what_the_warm_up_reserved_is_not_counted(shown, monkeypatch):
    """The first iteration of this case reserves 64 MiB more, as autotuning does."""
    tested = case(seq_len=64, device="cuda")

    class Tunes(Subject):
        tuned = False

        def forward(self):
            if not self.tuned:
                self.tuned = True
                torch.ones(64 * MIB // 4)
            return super().forward()

    before = torch.cuda.memory_allocated()  # what other tests left in this process
    values, _ = profile_memory(lambda: Tunes(card(tested.mechanism), tested, seed=0), "GPU-0")
    assert values["reserved_peak_bytes"] - before < 16 * MIB


def test_what_lives_already_and_workspaces_of_cublas_do_not_count(shown, monkeypatch):
    tested, workspaces = case(seq_len=64, device="cuda"), []

    class Multiplies(Subject):
        def forward(self):
            workspaces[:] = workspaces or [torch.ones(8 * MIB // 4)]
            return super().forward()

    alone, _ = weighed(tested)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", workspaces.clear, raising=False)
    left = torch.zeros(16 * MIB // 4)
    values, _ = profile_memory(lambda: Multiplies(card(tested.mechanism), tested, seed=0), "GPU-0")
    assert left.numel()
    assert values["workspace_bytes"] == 8 * MIB
    for key in ("allocated_peak_bytes", "allocated_delta_bytes", "kept_bytes"):
        assert values[key] == alone[key]


@pytest.mark.parametrize("mechanism", ["transformer", "retention"])
def test_decoding_holds_its_state_and_peaks_in_its_prefill(shown, mechanism):
    sizes = {"batch": 1, "heads": 4, "seq_len": 256, "width": 64, "causal": True}
    values, _ = weighed(case(mechanism, device="cuda", mode=Mode.DECODE, **sizes))
    state = 4 * (2 * 256 * 64 if mechanism == "transformer" else 64 * 16 * 2)
    assert values["state_bytes"] == state
    assert values["kept_bytes"] == 0
    assert values["allocated_delta_bytes"] > state + 256 * 64 * 4
    assert "saved_bytes" not in values


@pytest.mark.parametrize("do", ["build", "measure_memory"])
def test_a_case_is_on_the_card_that_it_names(gpu, do):
    before = torch.cuda.memory_allocated(0)
    worker = Worker(None, seed=0, measures_memory=do == "measure_memory")
    answered(worker, do, **sent(case(device="cuda:1")))
    assert torch.cuda.max_memory_allocated(1) > 0
    assert torch.cuda.memory_allocated(0) <= before


def test_what_a_case_reserved_is_given_back(gpu):
    sizes = sent(case(device="cuda", batch=1, seq_len=1024, heads=4))  # 16 MiB of scores
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
        return answered(worker, "measure_memory", **more, **sent(case(device=device)))[
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
