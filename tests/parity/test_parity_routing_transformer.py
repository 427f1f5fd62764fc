"""Routing heads against routing_transformer, with equal centroids."""

import warnings

import pytest
import torch
from torch.nn.functional import layer_norm

from attnbench.mechanisms.routing_transformer import Config, RoutingTransformer, Sdpa
from attnbench.records import Level, Workload


@pytest.mark.parametrize("cls", [RoutingTransformer, Sdpa])
def test_clusters(cls):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        package = pytest.importorskip(
            "routing_transformer.routing_transformer", reason="routing_transformer is missing"
        )
    w = Workload(batch=2, seq_len=32, width=32, heads=4, level=Level.CORE)
    torch.manual_seed(0)
    module = cls(Config(clusters=4, members=8, local_heads=0), w).double().eval()
    theirs = package.KmeansAttention(4, 8, 4, 8).double().eval()
    theirs.kmeans.means.copy_(module.centroids)
    theirs.kmeans.initted.fill_(True)
    q, k, v = torch.randn(3, 2, 4, 32, 8, dtype=torch.float64)
    y = module.attend(q, k, v, None)
    # theirs normalises only for the choice; the paper also attends with normalised vectors
    expected, _ = theirs(layer_norm(q, (8,)), layer_norm(k, (8,)), v)
    torch.testing.assert_close(y, expected, rtol=1e-3, atol=1e-4)
    assert (y == 0).all(-1).any(), "some token is in no cluster"
