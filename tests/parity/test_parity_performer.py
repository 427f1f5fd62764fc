"""Performer against the package `performer-pytorch`, with its random features.

The package's ε is 10⁻⁴, and its generalised kernel has no 1 / √M, which is moved into ω here.
Padding is not compared, since the package keeps padded keys in the normaliser. In causal attention
its positive kernel takes the maximum of the keys over the future too, so only `relu` is compared,
up to the 10⁻⁶ that the package adds to the normaliser.
"""

import warnings

import pytest
import torch

from attnbench.mechanisms.performer import CARD, Config
from attnbench.records import Level, Workload


@pytest.fixture(scope="module")
def package():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reason = "the package performer-pytorch is not installed"
        return pytest.importorskip("performer_pytorch.performer_pytorch", reason=reason)


@pytest.mark.parametrize("form", CARD.forms)
@pytest.mark.parametrize(
    ("kernel", "causal"), [("positive", False), ("relu", False), ("relu", True)]
)
def test_it_equals_the_package(package, form, kernel, causal):
    torch.manual_seed(0)
    relu = kernel == "relu"
    theirs = package.FastAttention(8, 20, causal=causal, generalized_attention=relu).double()
    w = Workload(batch=2, seq_len=30, width=32, heads=4, level=Level.CORE, causal=causal)
    config = Config(features=20, kernel=kernel, epsilon=None if relu else 1e-4, chunk=8)
    ours = CARD.forms[form](config, w).double()
    ours.omega = theirs.projection_matrix * (20**0.5 if relu else 1)
    q, k, v = torch.randn(3, 2, 4, 30, 8, dtype=torch.float64)
    close = {"rtol": 0, "atol": 1e-4} if causal else {}
    torch.testing.assert_close(ours.attend(q, k, v, None), theirs(q, k, v), **close)
