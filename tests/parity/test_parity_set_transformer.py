"""Set Transformer against the package isab-pytorch, whose blocks have neither residual nor rFF.

The package scales by the width of a head; the paper's authors, and we, by the whole width.
"""

import warnings

import pytest
import torch

from attnbench.mechanisms import set_transformer
from attnbench.records import Level, Workload

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    package = pytest.importorskip("isab_pytorch", reason="pip install isab-pytorch")

WIDTH, HEADS, POINTS = 64, 4, 5


def theirs():
    attention = package.isab_pytorch.Attention
    torch.manual_seed(0)
    return attention(WIDTH, HEADS, dim_head=WIDTH // HEADS).double()


def adopt(block, attention):
    """Copies the package's projections into a block, with queries rescaled to our scale."""
    key, value = attention.to_kv.weight.chunk(2)
    with torch.no_grad():
        block.query.weight.copy_(attention.to_q.weight * HEADS**0.5)
        block.key.weight.copy_(key)
        block.value.weight.copy_(value)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("form", ["eager", "sdpa", "folded"])
def test_the_points_read_the_same_as_in_the_package(form, masked):
    config = set_transformer.Config(points=POINTS)
    w = Workload(batch=2, seq_len=11, width=WIDTH, heads=HEADS, level=Level.ATTENTION)
    module = set_transformer.CARD.forms[form](config, w).double()
    attention = theirs()
    adopt(module.block, attention)
    torch.nn.init.zeros_(module.block.output.weight)
    x = torch.randn(2, 11, WIDTH, dtype=torch.float64)
    mask = torch.arange(11) < torch.tensor([[11], [6]]) if masked else None
    read = module.gather(x, mask) - module.block.query(module.points)
    points = module.points.expand(2, -1, -1)
    torch.testing.assert_close(attention.to_out(read), attention(points, x, mask=mask))
