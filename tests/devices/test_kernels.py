"""Which kernels of fused attention ran, as the profiler names them."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from torch.autograd import DeviceType
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity

from attnbench.devices import kernels, memory
from attnbench.measuring.subject import subject_of
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import PASSES
from tests.measuring.cases import case

SDPA = "aten::scaled_dot_product_attention"
FLASH = (SDPA, "aten::_scaled_dot_product_flash_attention", "aten::_flash_attention_forward")


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("aten::mm", "aten::softmax"), None),
        (FLASH, "scaled_dot_product_flash_attention"),
        ((*FLASH, f"{FLASH[1]}_backward"), "scaled_dot_product_flash_attention"),
        ((f"{FLASH[1]}_for_cpu_backward", "ScaledDotProductFlashAttentionBackward0"), None),
        (
            (
                "aten::_scaled_dot_product_attention_math",
                "aten::_scaled_dot_product_cudnn_attention",
            ),
            "scaled_dot_product_attention_math, scaled_dot_product_cudnn_attention",
        ),
        (("aten::_efficient_attention_forward",), "aten::_efficient_attention_forward"),
        (("xformers_flash::flash_fwd", "xformers_flash::flash_bwd"), "xformers_flash::flash_fwd"),
        (
            ("flash_attn::_flash_attn_forward", "flash_attn::_flash_attn_backward"),
            "flash_attn::_flash_attn_forward",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_operators_of_the_forward_pass_are_named(names, found):
    assert kernels.operators(names) == ({"attention_kernel": found} if found else {})


def built(one):
    return subject_of(card(one.mechanism), one, seed=0)


@pytest.mark.parametrize("mode", PASSES)
@pytest.mark.parametrize(
    ("backend", "kernel"),
    [
        (SDPBackend.FLASH_ATTENTION, "scaled_dot_product_flash_attention_for_cpu"),
        (SDPBackend.MATH, "scaled_dot_product_attention_math"),
    ],
)
def test_the_kernel_that_ran_is_recorded(backend, kernel, mode):
    tested = case(form="sdpa", mode=mode)
    with sdpa_kernel(backend):
        _, notes = memory.on_cpu(built, tested)
    assert notes["attention_kernel"] == kernel


def event(name, device=DeviceType.CUDA, annotates=False):
    return SimpleNamespace(name=name, device_type=device, is_user_annotation=annotates)


BOTH = (ProfilerActivity.CPU, ProfilerActivity.CUDA)


def traced(monkeypatch, *events, activities=BOTH):
    """Values and notes, if the profiler of a GPU had these events."""

    @contextmanager
    def profile(**_):
        yield SimpleNamespace(function_events=list(events))

    monkeypatch.setattr(kernels, "profile", profile)
    monkeypatch.setattr(kernels, "supported_activities", lambda: set(activities))
    return kernels.started_on_gpu(lambda lap: lap("forward"))


def test_the_kernels_of_an_iteration_are_counted(monkeypatch):
    events = (
        event("aten::mm", DeviceType.CPU),
        event("attnbench", annotates=True),  # a label, which would count twice
        event("void sgemm<float>(float*)"),
        event("void sgemm<float>(float*)"),
        event("softmax"),
        event("Memset (Device)"),
    )
    assert traced(monkeypatch, *events) == ({"kernels": 3}, {})
    assert traced(monkeypatch, *events, activities=[ProfilerActivity.CPU]) == ({}, {})


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(Params)", {"arithmetic": "3xTF32"}),
        ("void fmha_cutlassB_f32_aligned_64x64_k128_sm80(Params)", {"arithmetic": "3xTF32"}),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm75(Params)", {}),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(Params)", {}),
    ],
)
def test_fused_attention_that_splits_float32_is_noted(monkeypatch, kernel, found):
    assert traced(monkeypatch, event(kernel))[1] == found
