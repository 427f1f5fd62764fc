"""FNet: odd and even sizes, and its time."""

from dataclasses import replace

import pytest
import torch

from attnbench.analysis.costs import Costs
from attnbench.measuring.planner import plan
from attnbench.mechanisms.fnet import CARD, Config
from attnbench.records import Level, Selection, Workload
from tests.sweeps import sweep


@pytest.mark.parametrize("form", CARD.forms)
@pytest.mark.parametrize("seq_len", [1, 2, 7, 8])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 9])
def test_it_is_the_real_part_of_a_transform_in_two_dimensions(form, seq_len, width):
    w = Workload(batch=2, seq_len=seq_len, width=width, heads=1, level=Level.ATTENTION)
    x = torch.randn(2, seq_len, width, dtype=torch.float64)
    torch.testing.assert_close(CARD.forms[form](Config(), w)(x), torch.fft.fft2(x).real)


def test_its_time_is_predicted_from_its_bytes_since_it_has_no_products():
    """Without a prediction no budget could hold it."""
    asked = replace(sweep(["fastformer"]).request, level=Level.ATTENTION, lengths=(8192,))
    more = replace(asked, tokens=8 * asked.tokens, lengths=(8 * 8192,))
    for planned, longer in zip(
        plan(Selection(name="fnet"), asked), plan(Selection(name="fnet"), more), strict=True
    ):
        assert planned.flops == 0
        costs = Costs([])
        seconds, longer_s = costs.first_guess(planned), costs.first_guess(longer)
        assert 7 < longer_s / seconds < 9
