"""Local attention (Tay et al., 2021): each token attends to its own block of tokens.

    q, k, v = x W_Q, x W_K, x W_V                                       [B, H, N, d] each
    o_i = Σ_j softmax_j(q_i k_jᵀ / √d) v_j,    ⌊j / b⌋ = ⌊i / b⌋        [B, H, N, d]

Blocks of b consecutive tokens do not overlap or interact. The released code strides its blocks
through the sequence instead; the paper's are contiguous, and so are these. A sequence whose length
is not a multiple of b is padded internally; padding is never a key. Causal: j ≤ i in the block.
`flex` computes the same by torch's flex_attention, which visits no pairs of distant blocks.
For decoding, the state is k and v of the current block.
Source: arXiv:2011.04006, section 3.2.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from attnbench import attention as at


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`block`: b, the tokens of a block."""

    block: int = 20

    def __post_init__(self) -> None:
        self.require_at_least(1, "block")


class Local(at.CachedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        N, d = q.shape[2:]
        q, k, v = (self.blocks(t) for t in (q / d**0.5, k, v))  # [B, H, n, b, d]
        A = at.masked_softmax(q @ k.mT, self.allowed(N, mask, q.device))  # [B, H, n, b, b]
        return (A @ v).flatten(2, 3)[:, :, :N]

    def blocks(self, x: Tensor) -> Tensor:
        """[B, H, N, d] to [B, H, n, b, d]."""
        b = self.config.block
        if extra := -x.shape[2] % b:
            x = pad(x, (0, 0, 0, extra))
        return x.unflatten(2, (-1, b))

    def allowed(self, N: int, mask: Tensor | None, device: torch.device) -> Tensor | None:
        """Allowed keys of each block, broadcastable to [B, H, n, b, b]; None: all."""
        b = self.config.block
        past = at.causal_mask(b, b, device) if self.causal else None
        keys = at.padded_mask(mask, N, -N % b, device)
        if keys is None:
            return past
        keys = keys.unflatten(1, (-1, b))[:, None, :, None]
        return keys if past is None else keys & past

    @staticmethod
    def slots(config: Config, tokens: int) -> tuple[int, int]:
        return 0, min(config.block, tokens)

    def near(self, query: Tensor, key: Tensor) -> Tensor:
        return key >= query - query % self.config.block

    def attend_next(self, q: Tensor, state: at.Cache, mask: Tensor | None) -> Tensor:
        if mask is not None:
            return at.caches.next_output(q, *state.held(), mask)
        newest = state.length - 1
        (block,) = state.since(newest - newest % self.config.block)
        return at.caches.next_output(q, *block, mask)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """q kᵀ and A v of whole blocks, padding included."""
        padded = w.seq_len + -w.seq_len % config.block
        return at.Flops(at.projection_flops(w), 4 * w.batch * padded * config.block * w.width)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 2 * w.heads * w.tokens * config.block


def reference(module: Local, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    N = len(x)
    d = module.width // module.heads
    b = module.config.block
    rows = []
    for i in range(N):
        keys = [j for j in range(N) if j // b == i // b and (mask is None or mask[j])]
        keys = [j for j in keys if j <= i or not module.causal]
        q = module.query(x[i])
        k = module.key(x[keys])
        v = module.value(x[keys])
        heads = [slice(h * d, (h + 1) * d) for h in range(module.heads)]
        o = [(k[:, s] @ q[s] / d**0.5).softmax(0) @ v[:, s] for s in heads]
        rows.append(torch.cat(o) if keys else torch.zeros_like(q))
    return module.output(torch.stack(rows))


class Flex(at.flex.Form, Local):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return self.fused(q, k, v, mask)

    @staticmethod
    def visible(config: Config, w: at.Workload) -> at.flex.Window:
        """The block of each query, up to the query if causal."""
        b = config.block
        causal = w.causal

        def bounds(i: Tensor) -> at.flex.Range:
            first = i // b * b
            return first, i + 1 if causal else first + b

        return at.flex.within(w.seq_len, bounds)


CARD = at.Card(
    forms={"eager": Local, "flex": Flex},
    config=Config,
    reference=reference,
    parameters=at.projection_parameters,
    family=at.Family.FIXED,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper(
        "Long Range Arena: A Benchmark for Efficient Transformers",
        "Tay et al.",
        2021,
        "arXiv:2011.04006",
    ),
    cost=at.Cost("O(N·b·d)", time=1, memory=1),
    symbols={"b": ("tokens of a block", "block")},
    examples=(Config(block=5), Config(bias=True)),
)
