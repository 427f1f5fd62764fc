"""Allocated peaks against what the equations say must be alive, to the byte."""

import ctypes
import sys

import pytest
import torch

from attnbench.contract import Card
from attnbench.measure import memory
from attnbench.measure.subject import Subject
from attnbench.records import PASSES, Causality, Level, Mode
from attnbench.registry import card, names
from tests.measure.cases import case


def measured(tested):
    found, notes = memory.on_cpu(lambda: Subject(card(tested.mechanism), tested, seed=0))
    return found, notes


@pytest.mark.parametrize(("batch", "heads", "seq_len"), [(1, 4, 256), (2, 2, 300), (1, 1, 2048)])
def test_eager_softmax_core_holds_logits_weights_and_output(batch, heads, seq_len):
    width = 16 * heads
    tested = case(level=Level.CORE, batch=batch, heads=heads, seq_len=seq_len, width=width)
    found, _ = measured(tested)
    tokens, scores = batch * seq_len * width * 4, batch * heads * seq_len**2 * 4
    assert found["allocated_delta_bytes"] == 2 * scores + tokens
    assert found["allocated_peak_bytes"] == 3 * tokens + 2 * scores + tokens


def test_training_keeps_what_backward_needs():
    tested = case(level=Level.CORE, batch=1, heads=4, seq_len=256, width=64, mode=Mode.TRAINING)
    found, _ = measured(tested)
    tokens, scores = 256 * 64 * 4, 4 * 256**2 * 4
    assert found["saved_bytes"] == scores + tokens + 8, "weights, the output itself, √d"


def test_training_counts_gradients_and_optimiser_state():
    inference, _ = measured(case(seq_len=1, batch=1, width=256, heads=4))
    training, _ = measured(case(seq_len=1, batch=1, width=256, heads=4, mode=Mode.TRAINING))
    parameters = 4 * 256**2 * 4
    extra = training["allocated_peak_bytes"] - inference["allocated_peak_bytes"]
    assert extra >= 3 * parameters, "two moments and the gradients"
    assert extra < 3.2 * parameters


def test_peaks_are_the_same_each_time():
    tested = case("fastformer", "folded", seq_len=200, mode=Mode.TRAINING)
    first, second = (
        {key: value for key, value in measured(tested)[0].items() if "resident" not in key}
        for _ in range(2)
    )
    assert first == second


def test_fused_attention_names_its_kernel_and_stores_no_scores():
    found, notes = measured(case(form="sdpa", seq_len=1024, batch=1))
    assert "flash" in notes["attention_kernel"]
    assert found["allocated_delta_bytes"] < 1024 * 1024 * 4


@pytest.mark.parametrize("mechanism", ["fastformer", "reformer", "smart_bird"])
def test_draws_in_the_place_of_the_last_ones_are_no_leak(mechanism):
    """Two of them keep what the forward pass drew, until the next one."""
    tested = case(mechanism=mechanism, seq_len=64)
    module = Subject(card(mechanism), tested, seed=0).module
    with torch.no_grad():
        module(torch.randn(tested.workload.batch, 64, tested.workload.width))
    assert bool(module.draws(0)) == (mechanism != "fastformer")
    assert measured(tested)[0]["kept_bytes"] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="resident peaks come from /proc")
def test_a_resident_peak_sees_a_large_tensor():
    if not memory.resident_available():
        pytest.skip("this system does not let a process reset its resident peak")
    tested = case(level=Level.CORE, batch=1, heads=1, seq_len=2900, width=16)
    scores = 2900**2 * 4
    ctypes.CDLL(None).malloc_trim(0)  # what earlier tests freed would be used again, unseen
    found, _ = measured(tested)
    assert 1.5 * scores < found["resident_delta_bytes"] < 3 * scores


# forms that store a square of the length although the mechanism needs none
SQUARE = {("sliding_window", "masked")}


# forms that loop over the tokens in Python: minutes in training, so that shorter ones must do
LOOPS = {(name, "eager") for name in ("gated_delta_net", "mamba2", "retention")}


def lean():
    """Every form whose card says that memory grows slower than N², in both modes."""
    for name in names():
        tested: Card = card(name)
        if tested.cost.memory < 2:
            causal = tested.causality is Causality.ALWAYS
            forms = (own for own in tested.own_forms if not tested.forms[own].compiles)
            for form in (form for form in forms if (name, form) not in SQUARE):
                for mode in PASSES:
                    long = mode is Mode.TRAINING and (name, form) in LOOPS
                    marks = [pytest.mark.faults] * long
                    label = f"{name}-{form}-{mode}"
                    yield pytest.param(name, form, causal, mode, id=label, marks=marks)
                    if tested.causality is Causality.OPTIONAL:
                        yield pytest.param(name, form, True, mode, id=f"{label}-causal")


@pytest.mark.parametrize(("name", "form", "causal", "mode"), list(lean()))
def test_lean_mechanisms_never_hold_a_square_of_the_length(name, form, causal, mode):
    """Four times the length costs about 4 to the card's exponent; an N×N tensor would cost 16.

    Four times, since √N then doubles exactly wherever it is rounded.
    """
    tested = card(name)
    # a window that follows √N is a default; as a small example it would be fixed
    config = tested.examples[0] if tested.cost.memory == 1 else tested.config()
    options = tuple(
        (key, value)
        for key, value in vars(config).items()
        if value != getattr(tested.config(), key)
    )

    def delta(seq_len):
        one = case(
            name,
            form,
            options,
            batch=1,
            seq_len=seq_len,
            causal=causal,
            mode=mode,
            heads=2,
            width=8,
        )
        if reason := tested.refusal(form, config, one.workload):
            pytest.skip(reason)
        found, _ = measured(one)
        return found["allocated_delta_bytes"]

    length = 256 if (name, form) in LOOPS else 1024
    short, long = delta(length), delta(4 * length)
    assert long <= 4**tested.cost.memory * 1.25 * short
    assert tested.cost.memory > 1 or long < (4 * length) ** 2 * 4, "an N×N tensor of one head"


def test_the_counter_does_not_count_views():
    from attnbench.measure.counting import Counter

    x = torch.randn(8, 4)
    with Counter() as counter:
        x.view(4, 8).T[1:].unsqueeze(0)
        assert counter.operators == 0
        x + 1
    assert counter.operators == 1
    assert counter.moved_bytes == 2 * 8 * 4 * 4
    with Counter() as counter:
        x + torch.ones(1, 4).expand(8, 4)
    assert counter.moved_bytes == 2 * 8 * 4 * 4 + 2 * 4 * 4
