"""ETC: limit cases, and which tokens read which."""

import pytest
import torch

from attnbench.mechanisms import etc, transformer
from attnbench.records import Level, Workload


def workload(seq_len):
    return Workload(batch=1, seq_len=seq_len, width=16, heads=4, level=Level.ATTENTION)


def build(seq_len, **options):
    torch.manual_seed(0)
    return etc.Etc(etc.Config(**options), workload(seq_len)).double()


@pytest.mark.parametrize(("tokens", "radius"), [(99, 1), (3, 99), (13, 4)])
def test_if_all_tokens_see_each_other_it_is_softmax_attention(tokens, radius):
    module = build(13, global_tokens=tokens, radius=radius, shared=True)
    full = transformer.Transformer(transformer.Config(), workload(13)).double()
    full.load_state_dict(module.state_dict(), strict=False)
    with torch.no_grad():
        for vectors in (module.near, module.to_global, module.to_long):
            vectors.zero_()
    x = torch.randn(1, 13, 16, dtype=torch.float64)
    torch.testing.assert_close(module(x), full(x))


@pytest.mark.parametrize(("seq_len", "radius"), [(24, 4), (23, 4), (20, 1), (15, 30)])
def test_global_tokens_see_all_and_other_tokens_a_band(seq_len, radius):
    module = build(seq_len, global_tokens=2, radius=radius)
    x = torch.randn(1, seq_len, 16, dtype=torch.float64)
    y = module(x)
    for j in range(seq_len):
        other = x.clone()
        other[0, j] += 1
        reached = ((module(other) - y).abs() > 1e-12).any(-1)[0].tolist()
        assert reached == [i < 2 or j < 2 or abs(i - j) <= radius for i in range(seq_len)]
