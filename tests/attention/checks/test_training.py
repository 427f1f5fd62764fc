"""What a training loop does with forms, and what is said of modules that promise less."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from attnbench.attention.checks import training
from attnbench.attention.checks.checks import name_of, result
from attnbench.attention.checks.trial import Trial
from attnbench.mechanisms.catalogue import registry
from attnbench.mechanisms.transformer import CARD, Transformer
from tests.attention.checks.defects import Constant, Counting, Plural, ReadTwice, Wider


def test_of_modules_that_promise_less_it_is_noted_and_not_failed():
    """What silently gives wrong gradients is failed, whoever wrote it."""
    noted, failed = set(), set()
    for defect in (Wider, Constant, ReadTwice, Plural, Counting):
        card = replace(CARD, forms={"eager": defect}, declared=False)
        trial = Trial(card, CARD.config(), "eager", False)
        for check in training.CHECKS:
            found = result(check, trial, None)["result"]
            {"noted": noted, "failed": failed, "passed": set()}[found].add(name_of(check))
    assert noted == {
        "bf16 autocast works in both modes",
        "a second derivative is exact or raises",
        "a checkpoint gives the same gradients",
        "an empty batch and one token work",
    }
    assert "a second backward pass gives the same" in failed
    assert not failed & noted


def trial(form, **changes):
    card = replace(CARD, forms={"eager": form}, **changes)
    return Trial(card, card.config(), "eager", causal=False)


@pytest.mark.parametrize("check", training.CHECKS, ids=name_of)
def test_a_form_of_this_package_passes(check):
    assert result(check, trial(Transformer), None)["result"] == "passed"


@pytest.mark.parametrize(
    ("change", "allowed"), [(0.0, True), (1e-10, True), (1e-8, False), (float("nan"), False)]
)
def test_gradients_are_the_same_up_to_the_order_of_sums(change, allowed):
    """Beside the largest of all of them."""
    expected = {"x": torch.tensor([4.0]).double(), "w": torch.tensor([1e-12]).double()}
    ours = {**expected, "w": expected["w"] + 4 * change}
    with nullcontext() if allowed else pytest.raises(AssertionError, match="gradient of w diff"):
        training.same(ours, expected, "here")


def test_a_form_and_its_core_are_tried_where_there_is_one():
    whole, core = training.subjects(trial(Transformer))
    assert (whole.inputs, core.inputs) == (1, 3)
    assert [*core.leaves] == ["input 1", "input 2", "input 3"]
    assert whole.output().shape == whole.tensors[0].shape
    fnet = registry.card("fnet")
    assert len([*training.subjects(Trial(fnet, fnet.config(), "eager", False))]) == 1


def test_padding_is_tried_only_where_a_form_takes_it():
    masked = [subject.mask for subject in training.subjects(trial(Transformer), masked=True)]
    assert all(mask is not None and not mask.all() for mask in masked)
    unpadded = trial(Transformer, needs=lambda config, w: "padded" if w.padding else None)
    assert [subject.mask for subject in training.subjects(unpadded, masked=True)] == [None] * 2


@pytest.mark.parametrize(
    "change", [training.transposed, training.with_gaps, training.expanded], ids=name_of
)
def test_tensors_of_other_strides_have_the_same_shape(change):
    x = torch.randn(3, 4, 5)
    y = change(x)
    assert y.shape == x.shape
    assert not y.is_contiguous()
    if change is not training.expanded:
        assert torch.equal(y, x)
