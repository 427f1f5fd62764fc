"""Every form on a GPU against its reference in float64 on the CPU: outputs and gradients."""

from dataclasses import replace

import pytest
import torch

from attnbench.attention.card import Card
from attnbench.attention.checks.equations import against_its_reference
from attnbench.attention.checks.trial import Trial, causal_values
from attnbench.mechanisms.catalogue.registry import card, names

TYPES = (torch.float32, torch.bfloat16, torch.float16)
SLACK = 3.0  # other orders of sums than on a CPU, and functions with fewer digits
WIDTH = 64  # 16 for each head: fused kernels take no narrower ones
COMPILED = ("compiled", "flex")  # forms that torch compiles for each shape and type


def every(compiled: bool):
    """A trial of every example and form, full or causal, on a GPU."""
    for name in names():
        tested: Card = card(name)
        for index, config in enumerate(tested.examples[: 1 if compiled else None]):
            for form in tested.forms:
                for causal in causal_values(tested.causality):
                    if compiled == (form in COMPILED):
                        trial = Trial(tested, config, form, causal, "cuda", WIDTH)
                        label = f"{name}-{index}-{form}" + "-causal" * causal
                        yield pytest.param(trial, id=label)


def compare(trial, lengths, types):
    """Skips where the form refuses the device or all types."""
    refusals = {
        dtype: trial.refusal(replace(trial.workload(17), dtype=str(dtype).removeprefix("torch.")))
        for dtype in types
    }
    taken = [dtype for dtype in types if refusals[dtype] is None]
    if not taken:
        pytest.skip(refusals[types[0]])
    for seq_len, masked in lengths:
        if not masked or trial.refusal(replace(trial.workload(17), padding=0.3)) is None:
            against_its_reference(trial, seq_len, masked, taken, SLACK)


@pytest.fixture(autouse=True)
def exact_convolutions(monkeypatch):
    """In float32, which by torch's default they are not on a GPU."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.gpu
@pytest.mark.parametrize("trial", list(every(compiled=False)))
def test_a_form_computes_its_equations(trial):
    compare(trial, ((1, False), (17, False), (23, True)), TYPES)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES[:2], ids=str)
@pytest.mark.parametrize("trial", list(every(compiled=True)))
def test_a_compiled_form_computes_its_equations(trial, dtype):
    compare(trial, ((200, False),), (dtype,))


def test_on_a_cpu_the_same_comparison_passes_and_finds_a_wrong_form(monkeypatch):
    trial = Trial(card("transformer"), card("transformer").config(), "sdpa", True, "cpu", WIDTH)
    compare(trial, ((17, False), (23, True)), TYPES)
    form = trial.card.forms["sdpa"]
    right = form.attend
    monkeypatch.setattr(
        form, "attend", lambda self, q, k, v, mask: right(self, 1.1 * q, k, v, mask)
    )
    with pytest.raises(AssertionError, match="error of output"):
        compare(trial, ((17, False),), TYPES)
