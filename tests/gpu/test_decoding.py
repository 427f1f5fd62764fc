"""Steps on a GPU against the pass over the same tokens, for every form that decodes."""

from dataclasses import replace

import pytest
import torch

from attnbench import attention as at
from attnbench.attention.card import Card
from attnbench.attention.checks.trial import Trial, in_dtype, tokens
from attnbench.mechanisms.catalogue.registry import card, names
from attnbench.records import Causality
from tests.gpu.test_parity import SLACK, WIDTH

TYPES = (torch.float32, torch.bfloat16)
PREFILLED = 17  # tokens: no multiple of what kernels read at once
DECODED, SEVERAL = 6, 3
WIDE = 256  # 64 for each head, and `latent` then keeps more of a token than a fused kernel takes
MISCHOSEN = 0.25  # part of the tokens that may choose other keys in rounded numbers


def every(device="cuda"):
    """A trial of every example and form that decodes, and of usual options, wide; and the tokens
    of a step."""
    for name in names():
        tested: Card = card(name)
        if tested.causality is Causality.NEVER:
            continue
        usual = tested.config()
        settings = [(str(index), config, WIDTH) for index, config in enumerate(tested.examples)]
        for label, config, width in (*settings, ("wide", usual, WIDE)):
            for form, module in tested.forms.items():
                if tested.cannot_decode(form) is None:
                    trial = Trial(tested, config, form, True, device, width)
                    for step in (1,) if module.one_token_reason else (1, SEVERAL):
                        yield pytest.param(trial, step, id=f"{name}-{label}-{form}-{step}")


def follow(trial, dtype, step):
    """Steps of so many tokens after a prompt give the outputs of the pass over all of them.

    What chooses keys by scores may choose others for a few tokens where scores are rounded. Skips
    where the form refuses.
    """
    w = replace(trial.workload(PREFILLED + DECODED), step=step)
    if reason := trial.refusal(in_dtype(w, dtype)):
        pytest.skip(reason)
    module, x = trial.build(in_dtype(w, dtype), dtype), tokens(w, dtype=dtype)
    with torch.no_grad():
        expected = module(x)
        y, state = module.prefill(x[:, :PREFILLED], module.start(len(x), x.shape[1]))
        outputs = [y]
        for more in x[:, PREFILLED:].split(step, 1):
            y, state = module.step(more, state)
            outputs.append(y)
    y = torch.cat(outputs, 1)
    assert y.isfinite().all()
    errors = (y - expected).abs().amax(-1) / expected.abs().max()
    chooses = isinstance(module, at.Choosing) and dtype != torch.float32
    error = errors[:, PREFILLED:].float().quantile(1 - MISCHOSEN) if chooses else errors.max()
    allowed = SLACK * trial.allowed(dtype)
    assert error <= allowed, f"{dtype}: {error:.2g} apart; allowed: {allowed:.2g}"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("trial", "step"), list(every()))
def test_steps_continue_the_pass(trial, step, dtype):
    follow(trial, dtype, step)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_on_a_cpu_the_same_comparison_passes_and_finds_a_wrong_step(dtype, monkeypatch):
    trial = Trial(card("latent"), card("latent").config(), "absorbed", True, "cpu", WIDE)
    follow(trial, dtype, SEVERAL)
    form = trial.card.forms["absorbed"]
    right = form.step
    monkeypatch.setattr(form, "step", lambda self, x, state: right(self, -x, state))
    with pytest.raises(AssertionError, match="apart"):
        follow(trial, dtype, 1)
