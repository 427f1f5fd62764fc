"""Fastformer against the structure of its authors' published PyTorch code.

There one linear layer computes the logits of each pooling from the whole width, H numbers with a
bias, where the paper has a vector of width d for each head. Ours equals theirs with block-diagonal
weights: row h is w^h at the positions of head h and 0 elsewhere. The bias shifts all logits of a
head equally and cancels in the softmax.
"""

import pytest
import torch
from torch import Tensor, nn

from attnbench.mechanisms.fastformer import Config, Fastformer, Folded
from attnbench.records import Level, Workload

WIDTH, HEADS, N = 32, 4, 21


class Published(nn.Module):
    """Q, K, both logits computed from all D inputs, V = Q, and W_R with the query added."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.transform = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.query_logits, self.key_logits = (nn.Linear(WIDTH, HEADS) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        penalty = -1e4 * ~mask[:, None]  # [B, 1, N]
        q, k = self.query(x), self.key(x)
        q_bar = self.pooled(self.query_logits, q, penalty)
        p = k * q_bar
        k_bar = self.pooled(self.key_logits, p, penalty)
        return self.transform(k_bar * q) + q

    def pooled(self, logits: nn.Linear, x: Tensor, penalty: Tensor) -> Tensor:
        """[B, N, D] to [B, 1, D]: each head averages its slice."""
        scores = logits(x).transpose(1, 2) / (WIDTH // HEADS) ** 0.5 + penalty  # [B, H, N]
        slices = x.unflatten(-1, (HEADS, -1)).transpose(1, 2)  # [B, H, N, d]
        return (scores.softmax(-1)[:, :, None] @ slices).flatten(1)[:, None]


def pair(cls):
    """Ours with random parameters, and theirs with the same parameters embedded."""
    torch.manual_seed(0)
    w = Workload(batch=2, seq_len=N, width=WIDTH, heads=HEADS, level=Level.ATTENTION)
    ours, theirs = cls(Config(bias=True), w).double(), Published().double()
    theirs.query.load_state_dict(ours.query.state_dict())
    theirs.key.load_state_dict(ours.key.state_dict())
    theirs.transform.load_state_dict(ours.output.state_dict())
    for logits, vectors in ((theirs.query_logits, ours.w_q), (theirs.key_logits, ours.w_k)):
        logits.weight.data = torch.block_diag(*vectors.detach()[:, None])
        assert logits.weight.shape == (HEADS, WIDTH)
    return ours, theirs


@pytest.mark.parametrize("cls", [Fastformer, Folded])
@pytest.mark.parametrize("real", [N, 13])
def test_outputs_and_gradients(cls, real):
    ours, theirs = pair(cls)
    x = torch.randn(2, N, WIDTH, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(N) < torch.tensor([[N], [real]])
    results = []
    for module in (ours, theirs):
        y = module(x, mask if real < N or module is theirs else None)[mask]
        inputs = (x, module.query.weight, module.key.weight, module.key.bias)
        results.append((y, *torch.autograd.grad(y.square().sum(), inputs)))
    torch.testing.assert_close(*results)
