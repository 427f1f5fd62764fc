"""Decoding beyond the contract's check: long sequences, halves, work and memory of each kind."""

from dataclasses import replace

import pytest
import torch
from torch.autograd.profiler import profile

from attnbench.analysis.costs import Costs
from attnbench.analysis.statistics.curves import series_names
from attnbench.attention.checks.checks import continued
from attnbench.attention.checks.trial import tokens, trials
from attnbench.devices import memory
from attnbench.measuring.planner import plan
from attnbench.mechanisms.catalogue import registry
from attnbench.records import Level, Mode, Selection, Workload
from attnbench.running.request.options import read
from attnbench.running.request.requests import request
from tests.sweeps import sweep

CACHES = (
    "adaptively_sparse",
    "differential",
    "forgetting",
    "grouped_query",
    "latent",
    "transformer",
)
RECURRENT = (
    "gated_delta_net",
    "gated_linear",
    "kimi_delta",
    "lightning",
    "linear_transformer",
    "mamba2",
    "performer",
    "retention",
    "rwkv7",
)
RINGS = ("compressive_transformer", "local", "longformer", "sliding_window", "transformer_xl")


def causal_trials(names):
    """The examples of the default forms."""
    return [
        pytest.param(trial, id=f"{name}-{label}")
        for name in names
        for label, trial in trials(registry.card(name))
        if trial.causal and trial.form == trial.card.default_form(trial.config, trial.workload(17))
    ]


def built(name, seq_len):
    """The default form at its default options, and an input for it."""
    card = registry.card(name)
    w = Workload(batch=1, seq_len=seq_len, width=64, heads=4, level=Level.ATTENTION, causal=True)
    module = card.forms[card.default_form(card.config(), w)](card.config(), w).eval()
    return module, torch.randn(1, seq_len, 64)


def peak(call):
    """The most bytes that were live at a time above those at the start, and what it returns."""
    with profile(profile_memory=True) as events:
        memory.mark("start")
        result = call()
    return memory.peaks(events.kineto_results.events())["allocated_delta_bytes"], result


@pytest.mark.parametrize("name", registry.names())
def test_a_mechanism_has_steps_or_says_why_not(name):
    card = registry.card(name)
    reasons = {card.cannot_decode(form) for form in card.own_forms if form != "compiled"}
    assert bool(card.no_decode_reason) != (None in reasons)
    assert card.cannot_decode("compiled") is not None


@pytest.mark.parametrize("name", ["transformer", "retention", "mamba2"])
def test_a_prefill_has_the_flops_of_the_pass_that_it_is(name):
    given = {"lengths": (16384,), "causal": True, "fill": False}
    modes = (Mode.DECODE, Mode.INFERENCE)
    step, whole = (planned(name, modes=(mode,), **given)[16384] for mode in modes)
    assert step.prefill_flops == whole.flops


@pytest.mark.parametrize("trial", causal_trials(RINGS))
def test_a_ring_that_was_filled_many_times_keeps_what_a_step_reads(trial):
    w = trial.workload(101)
    module, x = trial.build(w), tokens(w)
    with torch.no_grad():
        expected = module(x)
        for prefilled in (3, 64, 90):
            y, _ = continued(module, x, prefilled)
            torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", [*CACHES, *RINGS])
def test_a_step_writes_into_the_buffers_that_it_was_given(name):
    module, x = built(name, 64)
    with torch.no_grad():
        _, before = module.prefill(x[:, :40], module.start(1, 64))
        shorter, (_, after) = peak(lambda: module.step(x[:, 40:41], before))
    assert before[0].data_ptr() == after[0].data_ptr()
    module, x = built(name, 1024)
    with torch.no_grad():
        _, before = module.prefill(x[:, :1000], module.start(1, 1024))
        longer, _ = peak(lambda: module.step(x[:, 1000:1001], before))
    # what grows are the scores of one token, not copies of the cache
    keys = 1024 * 64 * 4
    assert longer - shorter < keys / 2


@pytest.mark.parametrize("name", RECURRENT)
def test_a_prefill_needs_memory_in_proportion_to_its_tokens(name):
    peaks = []
    for seq_len in (1024, 2048, 4096):
        module, x = built(name, seq_len)
        with torch.no_grad():
            peaks.append(peak(lambda: module.prefill(x, module.start(1, seq_len)))[0])  # noqa: B023
    assert peaks[2] <= 2.1 * peaks[1] <= 2.1 * 2.1 * peaks[0]


def planned(name, **asked):
    """The plan of a mechanism by its lengths, by default in decode."""
    asked = {"level": Level.ATTENTION, "modes": (Mode.DECODE,), "batch": 1, **asked}
    lines = plan(Selection(name=name), replace(sweep([name]).request, **asked))
    return {line.case.workload.seq_len: line for line in lines}


def test_steps_of_several_tokens_are_series_of_decode_alone():
    asked = request(read({"mode": "decode,inference", "step": "1,4", "lengths": "64"}))
    lines = [*plan(Selection(name="local"), asked)]
    assert [*series_names(lines).values()] == ["local:eager S=1", "local:eager", "local:eager S=4"]
    one, _, four = lines
    assert four.flops == 4 * one.flops
    assert four.case.workload.outputs == 4
    assert one.block != four.block


def test_states_are_filled_where_a_prompt_takes_longer_than_the_steps():
    lengths = (1, 128, 2048, 65536)
    cases = planned("transformer", lengths=lengths)
    assert [line.filled for line in cases.values()] == [False, False, False, True]
    longest, whole = cases[65536], planned("transformer", lengths=lengths, fill=False)[65536]
    assert (longest.prefill_flops, whole.filled) == (0, False)
    costs = Costs([longest, whole])
    filling_s, prompt_s = costs.prepare_s(longest), costs.prepare_s(whole)
    assert filling_s < 1 < 60 < prompt_s
    state = 2 * 65536 * longest.case.workload.width * 4
    assert state < longest.predicted_bytes < 1.5 * state < whole.predicted_bytes
    forced = planned("transformer", lengths=lengths, fill=True)
    assert [line.filled for line in forced.values()] == [False, True, True, True]
