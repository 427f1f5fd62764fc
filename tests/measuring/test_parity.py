"""Gradients of two versions of a mechanism, each relative to its own size."""

import pytest
import torch

from attnbench.measuring.parity import largest_error

SHARE = 1.2e-5  # of float32
WEIGHTS = torch.linspace(-1.0, 1.0, 101)
INPUT = 1e-4 * torch.linspace(-1.0, 1.0, 101)
ZERO = 1e-7 * torch.sin(torch.arange(101.0))  # but for rounding errors
BASE = {"the output": WEIGHTS, "weights": WEIGHTS, "input": INPUT, "key bias": ZERO}
ROUNDED = {"weights": 1e-7, "input": 1e-11, "key bias": 1e-7}


@pytest.mark.parametrize(
    ("name", "values", "is_found"),
    [
        ("input", 0.99 * INPUT, True),
        ("input", 0.9 * INPUT, True),
        ("input", INPUT * (1 + 1e-6), False),
        ("weights", 1.001 * WEIGHTS, True),
        ("the output", 1.001 * WEIGHTS, True),
        ("key bias", -ZERO, False),
        ("key bias", ZERO + 1e-3, True),
        ("input", None, True),
    ],
)
def test_a_small_gradient_is_judged_by_its_own_size_and_a_vanishing_one_by_its_noise(
    name, values, is_found
):
    ours = {**BASE, name: values}
    if values is None:
        del ours[name]
    what, differs, allowed = largest_error(ours, BASE, SHARE, ROUNDED)
    assert (differs > allowed) == is_found
    if is_found:
        assert what == name


def test_what_is_allowed_is_never_more_than_a_share_of_the_largest_gradient():
    wild = dict.fromkeys(ROUNDED, 1e3)
    _, differs, allowed = largest_error({**BASE, "weights": 1.001 * WEIGHTS}, BASE, SHARE, wild)
    assert differs > allowed
