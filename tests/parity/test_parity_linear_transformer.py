"""Linear Transformer against the formula of kernel attention."""

import pytest
import torch
from torch.nn.functional import elu

from attnbench.mechanisms.linear_transformer import Config, LinearTransformer
from attnbench.records import Level, Workload
from tests.oracles import card


def test_it_equals_row_normalised_kernel_attention():
    q, k, v = torch.randn(3, 2, 4, 30, 8, dtype=torch.float64)
    w = Workload(batch=2, seq_len=30, width=32, heads=4, level=Level.CORE)
    kernel = (elu(q) + 1) @ (elu(k) + 1).mT
    expected = kernel @ v / (kernel.sum(-1, keepdim=True) + 1e-6)
    torch.testing.assert_close(LinearTransformer(Config(), w).attend(q, k, v, None), expected)


def test_how_the_linear_attention_of_a_package_departs():
    departs = card("linear_transformer").forms["linear_attention_transformer"].deviation
    assert "softmax of q over features, divided by √d" in departs
    package = pytest.importorskip("linear_attention_transformer.linear_attention_transformer")
    q, k, v = torch.randn(3, 2, 4, 30, 8, dtype=torch.float64)
    expected = (q.softmax(-1) / 8**0.5 @ k.softmax(-2).mT) @ v
    torch.testing.assert_close(package.linear_attn(q, k, v), expected)
