"""Linear Transformer against the authors' package, with its weights, and against the formula."""

import pytest
import torch
from torch.nn.functional import elu

from attnbench.mechanisms.linear_transformer import CARD, Config, LinearTransformer
from attnbench.records import Level, Workload


@pytest.mark.parametrize("form", CARD.forms)
@pytest.mark.parametrize("real", [24, 17])
def test_it_equals_the_package(form, real):
    reason = "the package pytorch-fast-transformers is not installed"
    attention = pytest.importorskip("fast_transformers.attention", reason=reason)
    masking = pytest.importorskip("fast_transformers.masking", reason=reason)
    torch.manual_seed(0)
    theirs = attention.AttentionLayer(attention.LinearAttention(8), 32, 4).double()
    w = Workload(batch=3, seq_len=24, width=32, heads=4, level=Level.ATTENTION)
    ours = CARD.forms[form](Config(bias=True), w).double()
    ours.query.load_state_dict(theirs.query_projection.state_dict())
    ours.key.load_state_dict(theirs.key_projection.state_dict())
    ours.value.load_state_dict(theirs.value_projection.state_dict())
    ours.output.load_state_dict(theirs.out_projection.state_dict())
    x = torch.randn(3, 24, 32, dtype=torch.float64)
    lengths = masking.LengthMask(torch.full((3,), real), max_len=24)
    expected = theirs(x, x, x, masking.FullMask(24), lengths, lengths)
    torch.testing.assert_close(ours(x, lengths.bool_matrix), expected)


def test_it_equals_row_normalised_kernel_attention():
    q, k, v = torch.randn(3, 2, 4, 30, 8, dtype=torch.float64)
    w = Workload(batch=2, seq_len=30, width=32, heads=4, level=Level.CORE)
    kernel = (elu(q) + 1) @ (elu(k) + 1).mT
    expected = kernel @ v / (kernel.sum(-1, keepdim=True) + 1e-6)
    torch.testing.assert_close(LinearTransformer(Config(), w).attend(q, k, v, None), expected)
