"""Declared FLOPs are those that torch counts, with padding, with biases, and of odd lengths."""

from dataclasses import replace

import pytest
import torch

from attnbench.attention.checks.flops import counted_flops
from attnbench.attention.checks.trial import NotApplicable, some_padding, tokens, trials
from attnbench.mechanisms.catalogue import registry

LENGTHS = (1, 2, 7, 24, 37, 64)
OTHERS = "linformer", "memory_compressed", "sinkhorn", "synthesizer"  # at every length


def biased(trial):
    """The trial and, where its example has no biases but may have, one with them."""
    try:
        other = replace(trial.config, bias=True)
    except ValueError:  # it has no projections
        return [trial]
    return [trial] if trial.config.bias else [trial, replace(trial, config=other)]


def compare(trial, seq_len, padding):
    """Three sequences; the first is all real."""
    w = replace(trial.workload(seq_len, batch=3), padding=padding, dtype="float32")
    try:
        module = trial.build(w, torch.float32)
    except NotApplicable:
        return
    flops, mask = module.flops(module.config, w), some_padding(w) if padding else None
    x, declared = tokens(w, dtype=torch.float32), flops.projections + flops.core
    counted = {counted_flops(module, x, mask, skipping=skips) for skips in (True, False)}
    assert declared in counted, f"{trial.config}, N = {seq_len}, padding {padding}"


def given(names, examples=""):
    """The trials of mechanisms, or those of the examples of this number."""
    return [
        pytest.param(trial, id=f"{name}-{label}")
        for name in names
        if registry.card(name).declared
        for label, trial in trials(registry.card(name))
        if label.startswith(examples)
    ]


@pytest.mark.parametrize("trial", given(OTHERS, examples="0"))
@pytest.mark.parametrize("padding", [0.0, 0.3])
def test_products_that_only_biases_or_padding_need_are_counted(trial, padding):
    for each in biased(trial):
        for seq_len in LENGTHS:
            compare(each, seq_len, padding)


@pytest.mark.parametrize("trial", given(registry.names()))
@pytest.mark.parametrize("padding", [0.0, 0.3])
@pytest.mark.long
def test_declared_flops_are_counted_for_every_mechanism(trial, padding):
    for each in biased(trial):
        for seq_len in LENGTHS:
            compare(each, seq_len, padding)
