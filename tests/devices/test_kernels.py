"""Which kernels of fused attention ran, as the profiler names them."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from torch.autograd import DeviceType
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity

from attnbench.catalogue.registry import card
from attnbench.devices import kernels, memory
from attnbench.measure.subject import subject_of
from attnbench.records import PASSES
from tests.measure.cases import case

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
        _, notes = memory.on_cpu(lambda: subject_of(card("transformer"), tested, seed=0))
    assert notes["attention_kernel"] == kernel


def test_a_form_without_fused_attention_has_none():
    _, notes = memory.on_cpu(lambda: subject_of(card("transformer"), case(), seed=0))
    assert "attention_kernel" not in notes


def event(name, *started, inside=()):
    launched = [SimpleNamespace(name=kernel) for kernel in started]
    return SimpleNamespace(
        name=name,
        kernels=launched,
        cpu_children=list(inside),
        device_type=DeviceType.CPU,
        is_user_annotation=False,
    )


def on_gpu(name, annotates=False):
    return SimpleNamespace(
        name=name,
        kernels=[],
        cpu_children=[],
        device_type=DeviceType.CUDA,
        is_user_annotation=annotates,
    )


BOTH = (ProfilerActivity.CPU, ProfilerActivity.CUDA)


def recorded(monkeypatch, *events, activities=BOTH, note="attention_device_kernels"):
    """A note on kernels, if the profiler of a GPU had these events."""
    return traced(monkeypatch, *events, activities=activities)[1].get(note)


def traced(monkeypatch, *events, activities=BOTH):
    """Values and notes, if the profiler of a GPU had these events."""

    @contextmanager
    def profile(**_):
        yield SimpleNamespace(function_events=list(events))

    monkeypatch.setattr(kernels, "profile", profile)
    monkeypatch.setattr(kernels, "supported_activities", lambda: set(activities))
    return kernels.started_on_gpu(lambda lap: lap("forward"))


def test_what_an_operator_and_those_inside_it_start_is_named(monkeypatch):
    inner = event(FLASH[2], "void pytorch_flash::flash_fwd_kernel<Traits<32, 128>>(Params)")
    outer = event(FLASH[1], "Memset (Device)", inside=[event("aten::empty"), inner])
    other = event("aten::mm", "sm90_xmma_gemm_f32f32")
    assert recorded(monkeypatch, other, outer, inner) == "pytorch_flash::flash_fwd_kernel"


def test_of_compiled_code_only_attention_is_named(monkeypatch):
    inside = event("triton", "triton_tem_fused_flex_attention_0", "triton_poi_fused_add_1")
    region = event("Torch-Compiled Region: 0/0", inside=[inside])
    assert recorded(monkeypatch, region) == "triton_tem_fused_flex_attention_0"


def test_the_kernels_of_an_iteration_are_counted(monkeypatch):
    values, _ = traced(
        monkeypatch,
        event("aten::mm", "sgemm"),
        on_gpu("attnbench", annotates=True),  # a label, which would count twice
        on_gpu("void sgemm<float>(float*)"),
        on_gpu("void sgemm<float>(float*)"),
        on_gpu("softmax"),
        on_gpu("Memset (Device)"),
    )
    assert values == {"kernels": 3}


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(Params)", "3xTF32"),
        ("void fmha_cutlassB_f32_aligned_64x64_k128_sm80(Params)", "3xTF32"),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm75(Params)", None),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(Params)", None),
    ],
)
def test_fused_attention_that_splits_float32_is_noted(monkeypatch, kernel, found):
    efficient = event("aten::_scaled_dot_product_efficient_attention", kernel)
    assert recorded(monkeypatch, efficient, note="arithmetic") == found


def test_a_torch_that_cannot_profile_a_gpu_names_nothing(monkeypatch):
    flash = event(FLASH[1], "flash_fwd_kernel")
    assert recorded(monkeypatch, flash, activities=[ProfilerActivity.CPU]) is None


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(Attention<float>::Params)", "fmha_cutlassF_f32_"),
        ("void (anonymous namespace)::softmax_warp_forward<float>(float*)", "softmax_warp_forward"),
        ("triton_tem_fused_flex_attention_0", "triton_tem_fused_flex_attention_0"),
    ],
)
def test_a_kernel_is_named_without_its_types(name, found):
    assert kernels.short(name).startswith(found)
    assert not set(kernels.short(name)) & set("<>( )")
