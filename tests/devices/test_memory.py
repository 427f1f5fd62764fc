"""Allocated peaks against what the equations say must be alive, to the byte."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from attnbench.attention.card import Card
from attnbench.attention.checks.trial import causal_values
from attnbench.devices import memory
from attnbench.measuring.planner import predicted_bytes
from attnbench.measuring.subject import subject_of
from attnbench.mechanisms.catalogue.registry import card, names
from attnbench.records import PASSES, Level, Mode
from tests.measuring.cases import case


def measured(tested):
    found, notes = memory.on_cpu(lambda one: subject_of(card(one.mechanism), one, seed=0), tested)
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
    trained = case(seq_len=1, batch=1, width=256, heads=4, mode=Mode.TRAINING)
    training, _ = measured(trained)
    parameters = 4 * 256**2 * 4
    extra = training["allocated_peak_bytes"] - inference["allocated_peak_bytes"]
    assert extra >= 3 * parameters, "two moments and the gradients"
    assert extra < 3.2 * parameters
    predicted = predicted_bytes(4, 4 * 256**2, trained.workload, 1)
    assert training["allocated_peak_bytes"] == pytest.approx(predicted, rel=0.1)


@pytest.mark.parametrize("mechanism", ["fastformer", "reformer", "smart_bird"])
def test_draws_in_the_place_of_the_last_ones_are_no_leak(mechanism):
    """Two of them keep what the forward pass drew, until the next one."""
    tested = case(mechanism=mechanism, seq_len=64)
    module = subject_of(card(mechanism), tested, seed=0).module
    with torch.no_grad():
        module(torch.randn(tested.workload.batch, 64, tested.workload.width))
    assert bool(module.draws(0)) == (mechanism != "fastformer")
    assert measured(tested)[0]["kept_bytes"] == 0


SMALL = {"batch": 1, "seq_len": 512, "heads": 2, "width": 8}

# forms that store a square of the length although the mechanism needs none
SQUARE = {("sliding_window", "masked")}


# forms that loop over the tokens in Python: seconds, and minutes in training
RECURRENT = "gated_delta_net gated_linear kimi_delta lightning mamba2 retention rwkv7"
LOOPS = {(name, "eager") for name in RECURRENT.split()}
SLOWEST = ("smart_bird", "eager")


def lean():
    """Every form whose card says that memory grows slower than N², in both modes.

    The default form where it is causal if it may be, and `eager` in inference; others are long.
    """
    for name in names():
        tested: Card = card(name)
        if tested.cost.memory < 2:
            # a window that follows √N is a default; as a small example it would be fixed
            config = tested.examples[0] if tested.cost.memory == 1 else tested.config()
            usual = vars(tested.config())
            options = tuple((k, v) for k, v in vars(config).items() if v != usual[k])
            for form, causal, mode in product(
                tested.own_forms, causal_values(tested.causality), PASSES
            ):
                one = case(name, form, options, causal=causal, mode=mode, **SMALL)
                refused = tested.refusal(form, config, one.workload)
                if refused or tested.forms[form].compiles or (name, form) in SQUARE:
                    continue
                slow = pytest.mark.faults if mode is Mode.TRAINING else pytest.mark.long
                default = form == tested.default_form(config, one.workload)
                usual = causal == causal_values(tested.causality)[-1]
                usual = usual and (default or (form, mode) == ("eager", Mode.INFERENCE))
                marks = () if usual and (name, form) != SLOWEST else pytest.mark.long
                if (name, form) in LOOPS:
                    marks = slow
                yield pytest.param(
                    one, id=f"{name}-{form}-{mode}" + "-causal" * causal, marks=marks
                )


@pytest.mark.parametrize("one", list(lean()))
def test_lean_mechanisms_never_hold_a_square_of_the_length(one):
    """Four times the length costs about 4 to the card's exponent; an N×N tensor would cost 16.

    Four times, since √N then doubles exactly wherever it is rounded.
    """
    exponent = card(one.mechanism).cost.memory
    short, long = (
        measured(replace(one, workload=replace(one.workload, seq_len=N)))[0] for N in (512, 2048)
    )
    key = "allocated_delta_bytes"
    assert long[key] <= 4**exponent * 1.25 * short[key]
    assert exponent > 1 or long[key] < 2048**2 * 4, "an N×N tensor of one head"
