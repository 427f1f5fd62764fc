"""FNet: known transforms, odd and even sizes, and its options."""

from dataclasses import replace

import pytest
import torch

from attnbench.mechanisms.fnet import CARD, Config
from attnbench.records import Level, Selection, Workload
from attnbench.workloads.plan import plan
from tests.sweeps import sweep


def build(form, seq_len, width):
    w = Workload(batch=2, seq_len=seq_len, width=width, heads=1, level=Level.ATTENTION)
    return CARD.forms[form](Config(), w)


@pytest.mark.parametrize("form", CARD.forms)
@pytest.mark.parametrize("seq_len", [1, 2, 7, 8])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 9])
def test_it_is_the_real_part_of_a_transform_in_two_dimensions(form, seq_len, width):
    x = torch.randn(2, seq_len, width, dtype=torch.float64)
    expected = torch.fft.fft2(x).real
    torch.testing.assert_close(build(form, seq_len, width)(x), expected)


@pytest.mark.parametrize("form", CARD.forms)
def test_a_constant_has_one_frequency(form):
    y = build(form, 6, 4)(torch.ones(2, 6, 4))
    assert (y[:, 0, 0] == 24).all()
    assert y.abs().sum() == 48


@pytest.mark.parametrize("form", CARD.forms)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_types_are_transformed_in_float32(form, dtype):
    x = torch.randn(2, 17, 6, dtype=torch.float64).to(dtype)
    y = build(form, 17, 6)(x)
    assert y.dtype == dtype
    torch.testing.assert_close(y, torch.fft.fft2(x.float()).real.to(dtype))


def test_its_time_is_predicted_from_its_bytes_since_it_has_no_products():
    """Without a prediction no budget could hold it."""
    asked = replace(sweep(["fastformer"]).request, level=Level.ATTENTION, lengths=(8192,))
    more = replace(asked, tokens=8 * asked.tokens, lengths=(8 * 8192,))
    for planned, longer in zip(
        plan(Selection(name="fnet"), asked), plan(Selection(name="fnet"), more), strict=True
    ):
        assert planned.flops == 0
        assert 7 < longer.predicted_s / planned.predicted_s < 9
