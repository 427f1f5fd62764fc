"""Errors against the reference: relative to the largest, and never hidden by what is no number."""

from dataclasses import replace
from math import inf

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.attention.checks.equations import (
    Values,
    against_its_reference,
    compare,
    errors,
    in_float64,
    relative,
    values,
)
from attnbench.attention.checks.trial import Trial
from attnbench.mechanisms.transformer import CARD
from tests.attention.checks.defects import Padded, Rough

ONE = torch.ones(2, 3, dtype=torch.float64)


def of(output, **gradients):
    return Values(output, {name: torch.as_tensor(g).double() for name, g in gradients.items()})


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_an_error_is_relative_to_a_scale_or_to_one(error, scale):
    a = ONE * 5
    assert relative(a + error, a, torch.tensor(scale, dtype=torch.float64)) == pytest.approx(
        abs(error) / scale, rel=1e-9, abs=1e-9
    )
    assert relative(a + error, a, torch.tensor(0.0)) == pytest.approx(abs(error), abs=1e-9)


def test_what_is_no_number_is_infinitely_wrong():
    assert relative(ONE * float("nan"), ONE, ONE[0, 0]) == inf
    with pytest.raises(AssertionError, match="error of output: inf"):
        compare(of(ONE * float("nan")), of(ONE), 1.0, "here")


def test_gradients_are_relative_to_the_largest_of_all_and_missing_ones_are_zero():
    found = errors(of(ONE, x=[3.0, 0.0]), of(ONE, x=[4.0, 0.0], w=[2.0]))
    assert found == {"output": 0.0, "dx": 0.25, "dw": 0.5}
    assert errors(of(ONE, extra=[1.0]), of(ONE, x=[4.0])) == {
        "output": 0.0,
        "dx": 1.0,
        "dextra": 0.25,
    }


def test_an_output_is_relative_to_its_own_largest_and_has_its_shape():
    assert errors(of(ONE * 4 + 1), of(ONE * 4))["output"] == 0.25
    with pytest.raises(ValueError, match=r"shape \[2, 2\], not \[2, 3\]"):
        errors(of(ONE[:, :2]), of(ONE))


def test_a_comparison_names_what_errs_and_where():
    compare(of(ONE + 0.1), of(ONE), 0.1 + 1e-9, "here")
    with pytest.raises(AssertionError, match=r"^here: error of dx: 0.5; allowed: 0.1"):
        compare(of(ONE, x=[1.0]), of(ONE, x=[2.0]), 0.1, "here")


def test_only_real_tokens_count():
    x = torch.ones(2, 3, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    found = values({"x": x, "other": torch.ones(1, requires_grad=True)}, 2 * x, mask)
    assert found.output.shape == (3, 4)
    assert found.gradients.keys() == {"x"}, "what nothing depends on has none"
    assert torch.equal(found.gradients["x"].any(-1), mask)


def test_whole_numbers_stay_what_they_are_in_float64():
    found = in_float64({"index": torch.tensor([3]), "gate": torch.tensor([0.5]).half()})
    assert [tensor.dtype for tensor in found.values()] == [torch.int64, torch.float64]


def trial(form):
    card = replace(CARD, forms={"eager": form})
    return Trial(card, card.config(), "eager", causal=False)


def test_a_form_is_compared_in_every_number_type_and_with_padding():
    types = (torch.float64, torch.float32)
    against_its_reference(trial(Rough), 17, masked=False, types=types[:1])
    with pytest.raises(AssertionError, match=r"torch.float32, N = 17, not padded"):
        against_its_reference(trial(Rough), 17, masked=False, types=types)
    against_its_reference(trial(Padded), 17, masked=False, types=types)
    with pytest.raises(AssertionError, match=r"N = 17, padded"):
        against_its_reference(trial(Padded), 17, masked=True, types=types)


def test_a_little_more_may_be_allowed():
    against_its_reference(trial(Rough), 17, masked=False, types=(torch.float32,), slack=1e5)
