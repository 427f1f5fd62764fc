"""Set Transformer against the package isab-pytorch, whose blocks have neither residual nor rFF.

The package scales by the width of a head; the paper's authors, and we, by the whole width.
"""

import pytest
import torch

from attnbench.mechanisms.set_transformer import Config
from attnbench.records import Level, Workload
from tests.oracles import card, pair

WIDTH, HEADS = 64, 4
CONFIG = Config(points=5)
W = Workload(batch=2, seq_len=11, width=WIDTH, heads=HEADS, level=Level.ATTENTION)


def adopt(block, attention):
    """Copies the package's projections into a block, with queries rescaled to our scale."""
    key, value = attention.to_kv.weight.chunk(2)
    with torch.no_grad():
        block.query.weight.copy_(attention.to_q.weight * HEADS**0.5)
        block.key.weight.copy_(key)
        block.value.weight.copy_(value)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("form", card("set_transformer").own_forms)
def test_the_points_read_the_same_as_in_the_package(form, masked):
    ours, theirs = pair("set_transformer", (form, "isab_pytorch"), CONFIG, W)
    attention = theirs.package_layer.attn1
    adopt(ours.block, attention)
    torch.nn.init.zeros_(ours.block.output.weight)
    x = torch.randn(2, 11, WIDTH, dtype=torch.float64)
    mask = torch.arange(11) < torch.tensor([[11], [6]]) if masked else None
    read = ours.gather(x, mask) - ours.block.query(ours.points)
    points = ours.points.expand(2, -1, -1)
    torch.testing.assert_close(attention.to_out(read), attention(points, x, mask=mask))
