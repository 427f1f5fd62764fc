"""Nyströmformer against `transformers` and `nystrom-attention`, with their parameters.

Both scale Z₀ by one number for the whole batch. With one head and one sequence this equals our
scale for each head, so few iterations are compared in this way; with many iterations the scale no
longer matters.
"""

import pytest
import torch

from attnbench.mechanisms.nystromformer import Config
from attnbench.records import Level, Workload
from tests.oracles import pair


@pytest.mark.parametrize(
    ("package", "seq_len", "heads", "batch", "iterations", "real"),
    [
        ("transformers", 6, 1, 1, 6, 6),
        ("transformers", 6, 4, 3, 40, 6),
        ("transformers", 24, 1, 1, 6, 24),
        ("transformers", 24, 4, 3, 40, 24),
        ("nystrom_attention", 24, 1, 1, 6, 24),
        ("nystrom_attention", 24, 1, 1, 6, 22),
        ("nystrom_attention", 24, 4, 3, 40, 24),
        ("nystrom_attention", 24, 4, 3, 40, 18),
    ],
)
def test_it_equals_the_package(package, heads, batch, iterations, real, seq_len):
    config = Config(landmarks=6, iterations=iterations, conv_kernel=33, bias=real == seq_len)
    w = Workload(
        batch=batch,
        seq_len=seq_len,
        width=16,
        heads=heads,
        level=Level.ATTENTION,
        padding=0.1 * (real < seq_len),
    )
    ours, theirs = (m.eval() for m in pair("nystromformer", ("eager", package), config, w))
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(batch, seq_len, 16, dtype=torch.float64)
    mask = (torch.arange(seq_len) < real).expand(batch, -1) if real < seq_len else None
    # one package's identity matrix is float32, and the other adds 10⁻⁸ to counts of tokens
    y, expected = ours(x, mask)[:, :real], theirs(x, mask)[:, :real]
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
