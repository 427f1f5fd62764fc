"""Longformer: separate projections."""

import pytest
import torch

from attnbench.attention.contract import merge
from attnbench.attention.primitives import softmax_attention
from tests.mechanisms.building import build


@pytest.mark.parametrize("form", ["eager", "blocked", "folded"])
def test_global_rows_use_separate_projections(form):
    module = build("longformer", form, window=4, global_tokens=3, bias=True)
    x = torch.randn(2, 20, 16, dtype=torch.float64)
    q, k, v = (
        module.split(m(x)) for m in (module.query_global, module.key_global, module.value_global)
    )
    full = module.output(merge(softmax_attention(q, k, v, None)))
    torch.testing.assert_close(module(x)[:, :3], full[:, :3])
    assert not torch.allclose(module(x)[:, 3:], full[:, 3:])
