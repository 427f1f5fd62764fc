"""Peaks of device memory against what the equations say must be alive."""

from dataclasses import replace

import pytest
import torch

from attnbench.attention.checks.trial import causal_values
from attnbench.devices.finding import find
from attnbench.measuring.subject import subject_of
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Level, Mode
from tests.measuring.cases import case

pytestmark = pytest.mark.gpu

BLOCK = 1 << 20  # bytes that torch's allocator may add to each large tensor
FUSED = {
    "transformer": "sdpa",
    "grouped_query": "sdpa",
    "latent": "absorbed",
    "sliding_window": "blocked",
    "differential": "sdpa",
    "native_sparse": "blocked",
}
LARGE = {"level": Level.CORE, "batch": 2, "heads": 8, "seq_len": 2048, "width": 128}


def weighed(tested, device="cuda"):
    tested = replace(tested, workload=replace(tested.workload, device=device))
    return find(device).profile_memory(
        lambda one: subject_of(card(one.mechanism), one, seed=0), tested
    )


def test_eager_softmax_holds_logits_weights_and_output(answer):
    values, _ = weighed(case(**LARGE))
    tokens, scores = 2 * 2048 * 128 * 4, 2 * 8 * 2048**2 * 4
    theory = 2 * scores + tokens
    answer("allocated above inputs, bytes over theory", values["allocated_delta_bytes"] - theory)
    assert theory <= values["allocated_delta_bytes"] <= theory + 4 * BLOCK
    # what is there before: q, k, v
    rest = values["allocated_peak_bytes"] - values["allocated_delta_bytes"] - 3 * tokens
    answer("allocated before besides inputs, bytes", rest)
    assert 0 <= rest <= BLOCK


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_training_keeps_the_weights_in_the_type_of_the_case(dtype, answer):
    values, _ = weighed(case(**LARGE, mode=Mode.TRAINING, dtype=dtype))
    scores = 2 * 8 * 2048**2 * torch.finfo(getattr(torch, dtype)).bits // 8
    answer(f"saved for backward in {dtype}, bytes over the weights", values["saved_bytes"] - scores)
    assert scores <= values["saved_bytes"] <= 1.1 * scores + 4 * BLOCK


def test_the_peaks_contain_one_another(answer):
    values, notes = weighed(case(**LARGE, mode=Mode.TRAINING))
    assert values["allocated_delta_bytes"] <= values["allocated_peak_bytes"]
    assert values["allocated_peak_bytes"] <= values["reserved_peak_bytes"]
    process = values.get("device_process_bytes", notes.get("nvml"))
    answer("process peak, bytes, or why there is none", process)
    answer("reserved peak, bytes", values["reserved_peak_bytes"])
    if "device_process_bytes" in values:
        assert values["device_process_bytes"] >= values["reserved_peak_bytes"]


def test_what_is_counted_is_the_same_as_on_a_cpu(answer):
    """Operators and bytes moved depend on the kernels of fused attention, and on nothing else."""
    small = case(mode=Mode.TRAINING, seq_len=64)
    here, there = (weighed(small, device)[0] for device in ("cuda", "cpu"))
    for count in ("operators", "moved_bytes"):
        answer(f"{count} on a GPU and on a CPU", (here[count], there[count]))
    assert here["operators"] == pytest.approx(there["operators"], rel=0.2)


def fused():
    """Mechanisms with a form that fused kernels compute, full or causal."""
    for name, form in FUSED.items():
        for causal in causal_values(card(name).causality):
            yield pytest.param(name, form, causal, id=f"{name}-{form}{'-causal' * causal}")


@pytest.mark.parametrize("padding", [0.0, 0.3], ids=["plain", "padded"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("mechanism", "form", "causal"), list(fused()))
def test_fused_attention_stores_no_scores(mechanism, form, causal, dtype, padding, answer):
    """Heads of all but the first share keys, which not every fused kernel can; nor do all take a
    mask."""
    sizes = {**LARGE, "dtype": dtype, "causal": causal, "padding": padding}
    values, notes = weighed(case(mechanism, form=form, **sizes))
    answer(f"kernel of {mechanism} in {dtype}, causal {causal}, padding {padding}", notes)
    assert values["allocated_delta_bytes"] < 2 * 8 * 2048**2 * 2
    assert "math" not in notes["attention_kernel"]
