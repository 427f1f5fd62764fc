"""Random numbers are drawn again from where they were, whoever draws them."""

import random

import numpy as np
import pytest
import torch

from attnbench.measuring.draws import draws, redraw


@pytest.mark.parametrize(
    "draw", [lambda: float(torch.rand(())), lambda: float(np.random.rand()), random.random]
)
def test_numbers_come_again(draw):
    states = draws("cpu")
    first = [draw() for _ in range(3)]
    redraw(states, "cpu")
    assert [draw() for _ in range(3)] == first
    assert draw() not in first
