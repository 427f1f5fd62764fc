"""A feed-forward (Vaswani et al., 2017): each token by itself through a wider layer and back.

    y = W_2 φ(W_1 x)                                   [B, N, D] to [B, N, I] to [B, N, D]
    y = W_2 (φ(W_g x) ⊙ W_1 x)                         with a gate (Shazeer, 2020)

No token reads another: there is no mask, no state, and a step of one token costs the same in any
context. `activation` is φ, by the names of transformers.

Notation: our I is `inner`.
Source: arXiv:1706.03762, equation (2); arXiv:2002.05202, equation (6).
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from attnbench import attention as at
from attnbench.mechanisms.feeds.activations import ACTIVATIONS, gated


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`inner`: I; None: 4 D; `gate`: whether there is W_g; `activation`: φ."""

    inner: int | None = None
    gate: bool = True
    activation: str = "silu"

    def __post_init__(self) -> None:
        self.require_at_least(1, "inner")
        self.require_one_of("activation", ACTIVATIONS)

    def width(self, w: at.Workload) -> int:
        """I."""
        return self.inner or 4 * w.width


class EachToken(at.Attention):
    """What computes each token by itself: its state is empty, and a step is a forward pass."""

    one_token_reason = ""

    def start(self, batch: int, capacity: int) -> at.State:
        return ()

    def prefill(self, x: Tensor, state: at.State) -> tuple[Tensor, at.State]:
        return self(x), state

    @staticmethod
    def state_elements(config: Any, workload: at.Workload) -> int:
        return 0

    @classmethod
    def step_flops(cls, config: Any, w: at.Workload) -> at.Flops:
        return cls.flops(config, replace(w, seq_len=w.step))


class FeedForward(EachToken):
    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        D = workload.width
        inner = config.width(workload)
        self.up = nn.Linear(D, inner, bias=config.bias)
        self.gate = nn.Linear(D, inner, bias=config.bias) if config.gate else None
        self.down = nn.Linear(inner, D, bias=config.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        activation = self.config.activation
        up = self.up(x)  # [B, N, I]
        if self.gate is None:
            return self.down(ACTIVATIONS[activation](up))
        return self.down(gated(activation, self.gate(x), up))

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """W_1 x, with a gate W_g x, and W_2."""
        return at.Flops(2 * w.tokens * w.width * config.width(w) * (3 if config.gate else 2), 0)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """Both inputs of the gate, the activation and the product."""
        return (4 if config.gate else 2) * w.tokens * config.width(w)


def reference(module: FeedForward, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    rows = []
    for token in x:
        h = affine(module.up, token)
        activation = module.config.activation
        if module.gate is None:
            h = ACTIVATIONS[activation](h)
        else:
            h = gated(activation, affine(module.gate, token), h)
        rows.append(affine(module.down, h))
    return torch.stack(rows)


def affine(layer: nn.Linear, x: Tensor) -> Tensor:
    """W x + b of one token."""
    y = (layer.weight * x).sum(-1)
    return y if layer.bias is None else y + layer.bias


def parameters(config: Config, w: at.Workload) -> int:
    """W_1, W_2 and with a gate W_g, with their biases."""
    return weights_of(w.width, config.width(w), config)


def weights_of(width: int, inner: int, config: Config) -> int:
    """The parameters of one feed-forward from `width` to `inner` and back."""
    ups = 2 if config.gate else 1
    return (ups + 1) * width * inner + config.bias * (ups * inner + width)


CARD = at.Card(
    forms={"eager": FeedForward},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.UNKNOWN,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper("Attention Is All You Need", "Vaswani et al.", 2017, "arXiv:1706.03762"),
    cost=at.Cost("O(N·D·I)", 1, 1),
    symbols={"I": ("the width of its inner layer", "inner")},
    examples=(
        Config(inner=24),
        Config(inner=24, gate=False, activation="gelu_tanh", bias=True),
        Config(inner=24, activation="clamped", bias=True),
    ),
    exempt={at.Exemption.NO_VALID_KEY: "no token reads another, so none lacks a valid key"},
)
