"""The classifier of the Fastformer paper around any mechanism: level `model`.

    token ids                                          [B, N]
    frozen random embedding, no positions              [B, N, D]
    layers × (mechanism, +, LayerNorm, feed-forward, +, LayerNorm)
    additive pooling, softmax(w tanh(W x))             [B, D]
    linear                                             [B, classes]

The shell is the same for every mechanism, so that only the mechanism differs. Dropout applies to
hidden states and never to attention weights, so that fused forms stay exact.

Reversible layers carry two streams, a ← a + attention(LayerNorm b) and b ← b + feed-forward
(LayerNorm a). Both start as x and are averaged at the end. Training keeps only the last pair and
recomputes the others from it, backwards and with the same random numbers.

Source: arXiv:2108.09084, section 4.1 and the official code (feed-forward as wide as the model);
arXiv:2001.04451, section 3, equations (7) to (9).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbench.attention.card import Card
from attnbench.attention.contract import Attention
from attnbench.attention.primitives import masked_softmax
from attnbench.records import Shell, Workload


class Classifier(nn.Module):
    """Token ids [B, N] and an optional mask [B, N] to logits [B, classes]."""

    def __init__(self, card: Card, form: str, config: Any, workload: Workload) -> None:
        super().__init__()
        shell, D = shell_of(workload), workload.width
        self.embedding = nn.Embedding(shell.vocabulary, D)
        self.embedding.weight.requires_grad_(False)
        built = [card.forms[form](config, workload) for _ in range(attention_sets(card, shell))]
        attentions = [attention for module in built for attention in module.stacked]
        self.layers = nn.ModuleList(
            Layer(attentions[index % len(attentions)], D, feed_forward(workload), shell.dropout)
            for index in range(shell.layers)
        )
        self.reversible = is_reversible(card, shell)
        self.pooling = nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, 1))
        self.classify = nn.Linear(D, shell.classes)
        self.dropout = nn.Dropout(shell.dropout)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.dropout(self.embedding(ids))
        if self.reversible:
            x = self.reverse(x, mask)
        else:
            for layer in self.layers:
                x = layer(x, mask)
        weights = masked_softmax(self.pooling(x).squeeze(-1), mask)  # [B, N]
        return self.classify((weights[:, None] @ x).squeeze(1))

    def reverse(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The output of the layers, [B, N, D], keeping no activations."""
        parameters = [p for p in self.layers.parameters() if p.requires_grad]
        return Reversible.apply(x, mask, self.layers, *parameters)

    def loss(self, ids: Tensor, mask: Tensor | None, labels: Tensor) -> Tensor:
        """Cross-entropy plus the auxiliary losses of the mechanisms."""
        loss = F.cross_entropy(self(ids, mask), labels)
        layers = (layer for layer in self.layers if isinstance(layer, Layer))
        extras = (a.auxiliary_loss() for a in dict.fromkeys(layer.attention for layer in layers))
        return loss + sum(extra for extra in extras if extra is not None)


class Layer(nn.Module):
    """[B, N, D] to [B, N, D]: mechanism and feed-forward, each with residual and LayerNorm."""

    def __init__(self, attention: Attention, width: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention = attention
        self.feed_forward = nn.Sequential(
            nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.norms[0](x + self.dropout(self.attention(x, mask)))
        return self.norms[1](x + self.dropout(self.feed_forward(x)))

    def halves(self, mask: Tensor | None) -> tuple[Callable[[Tensor], Tensor], ...]:
        """What a reversible layer adds to the first stream from the second, and vice versa."""
        return (
            lambda b: self.dropout(self.attention(self.norms[0](b), mask)),
            lambda a: self.dropout(self.feed_forward(self.norms[1](a))),
        )


class Reversible(torch.autograd.Function):
    """[B, N, D] to [B, N, D] through all layers, keeping only the final streams."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mask: Tensor | None, layers: Sequence[Layer], *parameters: Tensor
    ) -> Tensor:
        ctx.layers, ctx.mask, ctx.draws = layers, mask, []
        this, other = x, x
        for layer in layers:
            for half in layer.halves(mask):
                ctx.draws.append(draws_of(x.device))
                this, other = other, this + half(other)
        ctx.save_for_backward(this, other, *parameters)
        return (this + other) / 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        this, other, *parameters = ctx.saved_tensors
        d_this = d_other = gradient / 2
        gradients: list[Tensor | None] = [None] * len(parameters)
        for layer in reversed(ctx.layers):
            for half in reversed(layer.halves(ctx.mask)):
                with replayed(ctx.draws.pop(), this.device), torch.enable_grad():
                    start = this.detach().requires_grad_()
                    added = half(start)
                pieces = [start, *parameters]
                d_start, *shares = torch.autograd.grad(added, pieces, d_other, allow_unused=True)
                gradients = [add(a, b) for a, b in zip(gradients, shares, strict=True)]
                this, other = other - added.detach(), this
                d_this, d_other = d_other, d_this + d_start
        return d_this + d_other, None, None, *gradients


def add(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


def draws_of(device: torch.device) -> tuple[Tensor, ...]:
    """States of the random generators that a forward pass on the device may use."""
    get_state = getattr(torch.get_device_module(device), "get_rng_state", None)
    return torch.get_rng_state(), *([get_state(device)] if get_state else [])


@contextmanager
def replayed(states: tuple[Tensor, ...], device: torch.device) -> Iterator[None]:
    """Repeat random numbers within the block; afterwards the generators are as before."""
    of_cpu, *of_device = states
    with torch.random.fork_rng([device] * len(of_device), device_type=device.type):
        torch.set_rng_state(of_cpu)
        for state in of_device:
            torch.get_device_module(device).set_rng_state(state, device)
        yield


def shell_of(w: Workload) -> Shell:
    """The classifier's sizes, which every workload at level `model` has."""
    assert w.shell is not None, f"level {w.level} has no classifier"
    return w.shell


def feed_forward(w: Workload) -> int:
    """Inner width of the feed-forward."""
    return shell_of(w).feed_forward or w.width


def attention_sets(card: Card, shell: Shell) -> int:
    """How many sets of attention parameters the layers have: one if they share.

    Those of the layers of a stack are one set.
    """
    shared = card.share_layers if shell.share_layers is None else shell.share_layers
    return 1 if shared else shell.layers // max(1, len(card.layers))


def is_reversible(card: Card, shell: Shell) -> bool:
    """Whether layers are reversible: the shell's setting, or else the card's default."""
    return card.reversible if shell.reversible is None else shell.reversible


def refusal(card: Card, form: str, workload: Workload) -> str | None:
    """Why the classifier cannot be built around the form, or None."""
    if not is_reversible(card, shell_of(workload)):
        return None
    forms = [one.card.forms[one.form_in(form, workload)] for one in card.layers]
    if any(f.auxiliary_loss is not Attention.auxiliary_loss for f in forms or [card.forms[form]]):
        return "reversible layers keep no graph, which the mechanism's auxiliary loss needs"
    return None


def shell_flops(w: Workload) -> int:
    """Forward FLOPs of everything but the mechanism: feed-forward, pooling and classifier."""
    shell, layer = shell_of(w), 2 * 2 * w.tokens * w.width * feed_forward(w)
    pooling = 2 * w.tokens * w.width * (w.width + 2)
    return shell.layers * layer + pooling + 2 * w.batch * w.width * shell.classes


def shell_parameters(w: Workload) -> int:
    """Trainable parameters of everything but the mechanism."""
    shell, D, inner = shell_of(w), w.width, feed_forward(w)
    layer = 2 * D * inner + inner + D + 4 * D
    return shell.layers * layer + D * D + 2 * D + 1 + (D + 1) * shell.classes


def random_tokens(w: Workload, generator: torch.Generator) -> Tensor:
    """Token ids [B, N], uniform over the vocabulary."""
    words, shape = shell_of(w).vocabulary, (w.batch, w.seq_len)
    return torch.randint(words, shape, generator=generator, device=generator.device)
