"""The classifier of the Fastformer paper around any mechanism: level `model`.

    token ids                                          [B, N]
    frozen random embedding, no positions              [B, N, D]
    layers × (mechanism, +, LayerNorm, feed-forward, +, LayerNorm)
    additive pooling, softmax(w tanh(W x))             [B, D]
    linear                                             [B, classes]

The shell is the same for every mechanism, so that only the mechanism differs. Dropout applies to
hidden states and never to attention weights, so that fused forms stay exact.

Source: arXiv:2108.09084, section 4.1 and the official code (feed-forward as wide as the model).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbench.attention.card import Card
from attnbench.attention.contract import Attention
from attnbench.attention.kernels.primitives import masked_softmax
from attnbench.records import Shell, Workload


class Classifier(nn.Module):
    """Token ids [B, N] and an optional mask [B, N] to logits [B, classes]."""

    def __init__(self, card: Card, form: str, config: Any, workload: Workload) -> None:
        super().__init__()
        shell = shell_of(workload)
        D = workload.width
        self.embedding = nn.Embedding(shell.vocabulary, D)
        self.embedding.weight.requires_grad_(False)
        own = config.sized(workload)
        sets = range(attention_sets(card, shell))
        built = [card.forms[form](config, own) for _ in sets]
        attentions = [attention for module in built for attention in module.stacked]
        self.layers = nn.ModuleList(
            ClassifierLayer(attentions[index % len(attentions)], D, shell.dropout)
            for index in range(shell.layers)
        )
        self.pooling = nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, 1))
        self.classify = nn.Linear(D, shell.classes)
        self.dropout = nn.Dropout(shell.dropout)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.dropout(self.embedding(ids))
        for layer in self.layers:
            x = layer(x, mask)
        weights = masked_softmax(self.pooling(x).squeeze(-1), mask)  # [B, N]
        return self.classify((weights[:, None] @ x).squeeze(1))

    def loss(self, ids: Tensor, mask: Tensor | None, labels: Tensor) -> Tensor:
        """Cross-entropy plus the auxiliary losses of the mechanisms."""
        loss = F.cross_entropy(self(ids, mask), labels)
        layers = (layer for layer in self.layers if isinstance(layer, ClassifierLayer))
        extras = (a.auxiliary_loss() for a in dict.fromkeys(layer.attention for layer in layers))
        return loss + sum(extra for extra in extras if extra is not None)


class ClassifierLayer(nn.Module):
    """[B, N, D] to [B, N, D]: mechanism and feed-forward, each with residual and LayerNorm."""

    def __init__(self, attention: Attention, width: int, dropout: float) -> None:
        super().__init__()
        self.attention = attention
        inner = nn.Linear(width, width)
        outer = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(inner, nn.GELU(), outer)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.norms[0](x + self.dropout(self.attention(x, mask)))
        return self.norms[1](x + self.dropout(self.feed_forward(x)))


def shell_of(w: Workload) -> Shell:
    """The classifier's sizes, which every workload at level `model` has."""
    assert w.shell is not None, f"level {w.level} has no classifier"
    return w.shell


def attention_sets(card: Card, shell: Shell) -> int:
    """How many sets of attention parameters the layers have: one if they share.

    Those of the layers of a stack are one set.
    """
    return 1 if card.share_layers else shell.layers // max(1, len(card.layers))


def shell_flops(w: Workload) -> int:
    """Forward FLOPs of everything but the mechanism: feed-forward, pooling and classifier."""
    shell = shell_of(w)
    layer = 2 * 2 * w.tokens * w.width**2
    pooling = 2 * w.tokens * w.width * (w.width + 2)
    return shell.layers * layer + pooling + 2 * w.batch * w.width * shell.classes


def shell_parameters(w: Workload) -> int:
    """Trainable parameters of everything but the mechanism."""
    shell = shell_of(w)
    D = w.width
    layer = 2 * D * D + 6 * D
    return shell.layers * layer + D * D + 2 * D + 1 + (D + 1) * shell.classes


def random_tokens(w: Workload, generator: torch.Generator) -> Tensor:
    """Token ids [B, N], uniform over the vocabulary."""
    words = shell_of(w).vocabulary
    shape = (w.batch, w.seq_len)
    return torch.randint(words, shape, generator=generator, device=generator.device)
