"""What a case is built of: parameters, inputs, masks, and how its output is checked."""

from itertools import product

import pytest
import torch

from attnbench.measuring.subject import subject_of
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Level, Mode
from tests.measuring.cases import case

FORMS = [("transformer", "sdpa"), ("fastformer", "folded"), ("fastformer", "eager")]


CASES = [
    (*form, level)
    for form, level in product(FORMS, Level)
    if (form, level) != (FORMS[1], Level.CORE)  # which it does not have
]


def subject(mechanism, form, **sizes):
    return subject_of(card(mechanism), case(mechanism, form, **sizes), seed=0)


@pytest.mark.parametrize(("mechanism", "form", "level"), CASES)
def test_training_moves_every_parameter(mechanism, form, level):
    one = subject(mechanism, form, level=level, mode=Mode.TRAINING)
    before = [p.detach().clone() for p in one.parameters]
    phases = []
    output = one.iteration()(phases.append)
    assert one.check(output) == ""
    assert phases == ["forward", "backward", "step"][: 2 + bool(one.parameters)]
    for old, new in zip(before, one.parameters, strict=True):
        assert not torch.equal(old, new)
    if level is not Level.MODEL:
        assert all(x.grad is not None for x in one.inputs)
    one.clear()
    assert all(t.grad is None for t in (*one.parameters, *one.inputs))


def test_the_same_seed_gives_the_same_numbers():
    outputs = []
    for seed in (3, 3, 4):
        one = subject_of(card("transformer"), case(level=Level.MODEL), seed)
        outputs.append(one.iteration()(lambda phase: None))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def test_a_wrong_output_is_reported():
    one = subject("transformer", "eager")
    good = one.iteration()(lambda phase: None)
    assert "not finite" in one.check(good.index_fill(1, torch.tensor([0]), float("nan")))
    assert "shape [2, 31, 16]" in one.check(good[:, 1:])
    assert "float64" in one.check(good.double())


def test_the_embedding_is_frozen_and_dropout_is_for_training():
    one = subject("transformer", "eager", level=Level.MODEL, mode=Mode.TRAINING)
    one.iteration()(lambda phase: None)
    assert one.module.embedding.weight.grad is None
    assert one.module.training
    assert not subject("transformer", "eager", level=Level.MODEL).module.training


def test_padding_is_the_share_at_the_end_of_every_sequence():
    mask = subject("transformer", "eager", padding=0.25).mask
    assert mask.tolist() == [[True] * 24 + [False] * 8] * 2
