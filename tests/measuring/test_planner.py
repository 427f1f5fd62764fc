"""Which cases a selection becomes, with their sizes, forms and bytes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.attention.contract import Attention
from attnbench.errors import UnknownMechanism, UnknownOption
from attnbench.measuring.planner import make_workload, plan, predicted_bytes, step_flops
from attnbench.mechanisms.catalogue.registry import card
from attnbench.mechanisms.transformer import Transformer
from attnbench.records import Level, Mode, Selection
from tests import sweeps
from tests.measuring.cases import case


def test_one_sequence_is_decoded_unless_a_batch_is_fixed():
    request, retention = sweeps.decoded({"retention": lambda n: n}).request, card("retention")
    eight = replace(request.sizes[0], batch=8)
    for sizes, mode, batch in (
        (request.sizes[0], Mode.DECODE, 1),
        (eight, Mode.DECODE, 8),
        (request.sizes[0], Mode.INFERENCE, 128),
    ):
        assert make_workload(retention, request, sizes, mode, 64).batch == batch


def request_of(**changes):
    return replace(sweeps.sweep(("transformer",)).request, **changes)


def lines_of(name, form=None, options=(), **changes):
    asked = {"level": Level.ATTENTION, "lengths": (64,), "modes": (Mode.INFERENCE,), **changes}
    return [*plan(Selection(name=name, form=form, options=options), request_of(**asked))]


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_a_batch_that_is_not_fixed_fills_the_tokens_of_the_sweep(tokens, seq_len):
    request = request_of(tokens=tokens)
    w = make_workload(card("transformer"), request, request.sizes[0], Mode.INFERENCE, seq_len)
    assert w.batch >= 1
    assert w.batch == 1 or w.tokens <= tokens < w.tokens + seq_len


@pytest.mark.parametrize("name", ["transformer", "retention"])
def test_what_is_always_causal_is_planned_so_and_steps_are(name):
    cases = lines_of(name, modes=(Mode.INFERENCE, Mode.DECODE))
    causal = [line.case.workload.causal for line in cases]
    assert causal == [name == "retention", True]


def test_a_pattern_means_all_forms_that_match_in_their_order():
    forms = [line.case.form for line in lines_of("fastformer", "*")]
    assert forms == [*card("fastformer").forms]
    assert [line.case.form for line in lines_of("fastformer", "fold*")] == ["folded"]
    with pytest.raises(UnknownMechanism, match=r"unknown form of fastformer 'flod'.*folded"):
        lines_of("fastformer", "flod")


def test_an_unknown_option_names_its_mechanism():
    with pytest.raises(UnknownOption, match=r"^linformer: no option 'rnak'; options: "):
        lines_of("linformer", options=(("rnak", 3),))


def test_a_step_without_a_declaration_has_its_tokens_share_of_the_prefill():
    class Undeclared(Transformer):
        step_flops = Attention.step_flops

    w = replace(case(seq_len=30, mode=Mode.DECODE, causal=True).workload, step=3)
    config = card("transformer").config()
    whole = Transformer.flops(config, w)
    found = step_flops(Undeclared, config, w)
    assert (found.projections, found.core) == (whole.projections // 10, whole.core // 10)
    assert step_flops(Transformer, config, w) == Transformer.step_flops(config, w)


def test_training_keeps_more_than_inference_and_more_so_with_each_layer():
    w = case(level=Level.ATTENTION).workload
    trained = replace(w, mode=Mode.TRAINING)
    assert predicted_bytes(0, 0, w, 1) == predicted_bytes(0, 0, w, 5)
    one, five = (predicted_bytes(1000, 0, trained, layers) for layers in (1, 5))
    assert five == 5 * one
    assert predicted_bytes(1000, 0, w, 1) < one
    half = replace(w, dtype="bfloat16")
    assert 2 * predicted_bytes(1000, 50, half, 1) == predicted_bytes(1000, 50, w, 1)
