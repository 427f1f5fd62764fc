"""Lightning attention: the decays of its heads and layers."""

import pytest
import torch

from attnbench.mechanisms.lightning import CARD, Config
from attnbench.records import Level, Workload


@pytest.mark.parametrize("form", CARD.forms)
@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_it_equals_the_parallel_form(form, depth):
    w = Workload(batch=2, seq_len=50, width=16, heads=4, level=Level.CORE, causal=True)
    q, k, v = torch.randn(3, 2, 4, 50, 4, dtype=torch.float64)
    n = torch.arange(50)
    slopes = 0.25 ** torch.arange(1, 5, dtype=torch.float64) * (1 - depth + 1e-5)
    D = (-slopes[:, None, None] * (n[:, None] - n)).exp().tril()
    found = CARD.forms[form](Config(chunk=16, depth=depth), w).attend(q, k, v, None)
    torch.testing.assert_close(found, (q @ k.mT * D) @ v)
