"""Retention and lightning attention against the parallel forms of papers."""

import pytest
import torch

from tests.mechanisms.building import core, qkv

H = torch.arange(4).double()
PARALLEL = (
    # of each head −log γ, and the factor of q
    ("retention", {}, -(1 - 2 ** (-5 - H)).log(), 1 / 2),
    ("lightning", {"depth": 0.0}, 0.25 ** (1 + H) * (1 + 1e-5), 1),
    ("lightning", {"depth": 0.5}, 0.25 ** (1 + H) * (0.5 + 1e-5), 1),
    ("lightning", {"depth": 1.0}, 0.25 ** (1 + H) * 1e-5, 1),
)


@pytest.mark.parametrize("form", ["eager", "chunked"])
@pytest.mark.parametrize(("name", "options", "rates", "scale"), PARALLEL)
def test_it_equals_the_parallel_form(form, name, options, rates, scale):
    q, k, v = qkv(50)
    v = torch.cat([v, v.flip(2)], -1) if name == "retention" else v  # whose values are wider
    n = torch.arange(50)
    D = (-rates[:, None, None] * (n[:, None] - n)).exp().tril()
    found = core(name, form, seq_len=50, chunk=16, **options).attend(q, k, v, None)
    torch.testing.assert_close(found, (scale * q @ k.mT * D) @ v)
