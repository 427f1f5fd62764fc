"""Routing heads against routing_transformer, with equal centroids."""

import pytest
import torch
from torch.nn.functional import layer_norm

from attnbench.mechanisms.routing_transformer import Config
from attnbench.records import Level, Workload
from tests.oracles import pair

CONFIG = Config(clusters=4, members=8, local_heads=0)
W = Workload(batch=2, seq_len=32, width=32, heads=4, level=Level.ATTENTION)


@pytest.mark.parametrize("form", ["eager", "sdpa"])
def test_clusters(form):
    name = "routing_transformer"
    ours, theirs = (module.eval() for module in pair(name, (form, name), CONFIG, W))
    theirs = theirs.package_layer.global_attn
    theirs.kmeans.means.copy_(ours.centroids)
    theirs.kmeans.initted.fill_(True)
    q, k, v = torch.randn(3, 2, 4, 32, 8, dtype=torch.float64)
    y = ours.attend(q, k, v, None)
    # theirs normalises only for the choice; the paper also attends with normalised vectors
    expected, _ = theirs(layer_norm(q, (8,)), layer_norm(k, (8,)), v)
    torch.testing.assert_close(y, expected, rtol=1e-3, atol=1e-4)
    assert (y == 0).all(-1).any(), "some token is in no cluster"
