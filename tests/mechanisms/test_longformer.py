"""Longformer: separate projections and published sizes."""

import pytest
import torch

from attnbench.attention.contract import merge
from attnbench.attention.primitives import softmax_attention
from attnbench.mechanisms.longformer import CARD, Config
from attnbench.records import Level, Workload


@pytest.mark.parametrize("form", ["eager", "blocked", "folded"])
def test_global_rows_use_separate_projections(form):
    w = Workload(batch=2, seq_len=20, width=32, heads=4, level=Level.ATTENTION)
    module = CARD.forms[form](Config(window=4, global_tokens=3, bias=True), w).double()
    x = torch.randn(2, 20, 32, dtype=torch.float64)
    q, k, v = (
        module.split(m(x)) for m in (module.query_global, module.key_global, module.value_global)
    )
    full = module.output(merge(softmax_attention(q, k, v, None)))
    torch.testing.assert_close(module(x)[:, :3], full[:, :3])
    assert not torch.allclose(module(x)[:, 3:], full[:, 3:])


def test_flops_per_token_match_the_published_sizes():
    config = Config(window=16, global_tokens=16)
    for seq_len, expected in [(128, 0.860), (512, 0.848), (2048, 0.845), (65536, 0.844)]:
        w = Workload(batch=1, seq_len=seq_len, level=Level.ATTENTION)
        flops = CARD.forms["eager"].flops(config, w)
        total = flops.projections + flops.core
        assert total / w.tokens / 1e6 == pytest.approx(expected, abs=5e-4)
