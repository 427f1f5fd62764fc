"""Mixture of block attention (MoBA, Lu et al., 2025): each query reads the blocks it fits best.

    q, k, v = x W_Q, x W_K, x W_V                       [B, H, N, d] each
    k̄_m = mean of k in block m                         [B, H, N / C, d]
    s_im = q_i · k̄_m,  m before the block of i
    J_i = tokens up to i of its own block, and of the n − 1 blocks with the largest s_im
    o_i = Σ_j softmax_j(q_i · k_j / √d) v_j,  j ∈ J_i  [B, H, N, d]

A block has C tokens. Each head chooses for itself, and the choice has no gradient. A mean leaves
padding out.

`eager` stores the weights, which are 0 outside of J. `blocked` goes by block of keys
(`attention.kernels.selection`): it stores none, and computes those in J only. `flex` lets
flex_attention visit the blocks that any of 128 queries reads, on a GPU. All score all N / C means.
Always causal. For decoding, the state is k and v, and the sum of k in every block.

Left out: full attention in some of a model's layers.
Source: arXiv:2502.13189, equations (4) to (6).
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attnbench import attention as at


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`block`: C, at least 2; `blocks`: n, that a query reads, its own among them."""

    block: int = 512
    blocks: int = 3

    def __post_init__(self) -> None:
        self.require_at_least(2, "block")
        self.require_at_least(1, "blocks")


class Moba(at.Choosing, at.QKVAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        C = self.config.block
        means = at.block_means(at.widen(k.detach()), mask, C).mT
        self.choice = at.choose(
            lambda q, _: at.widen(q) @ means,
            q,
            means.shape[-1],
            self.heads,
            self.config.blocks - 1,
            C,
            at.real_blocks(mask, C),
        )
        return self.read(q, k, v, self.choice, mask)

    def start(self, batch: int, capacity: int) -> at.ChosenState:
        like = self.key.weight
        H = self.heads
        d = self.width // self.heads
        k, v = like.new_empty(2, batch, H, capacity, d)
        sums = like.new_zeros(batch, H, -(-capacity // self.config.block), d)
        return at.ChosenState(k, v, at.widen(sums), 0)

    def prefill(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        q, k, v = self.projected(x)
        o = self.attend(q, k, v, None)
        return self.finished(o, x), state.added(k, v, k, self.config.block)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        C = self.config.block
        count = self.config.blocks - 1
        q, k, v = self.projected(x)
        state = state.added(k, v, k, C)
        last = state.length - 1
        choice = at.top_blocks(at.widen(q) @ (state.sums / C).mT, count, last, C)
        k, v = state.held()
        return self.finished(at.read_next(q, k, v, choice, count, C), x), state

    @staticmethod
    def state_elements(config: Config, workload: at.Workload) -> int:
        w = workload
        return w.batch * w.width * (2 * w.seq_len + -(-w.seq_len // config.block))

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """The projections; scores of means; then q kᵀ and A v over all keys."""
        core = scoring(config, w) + 4 * w.tokens * w.seq_len * w.width
        return at.Flops(at.projection_flops(w), core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 3 * w.heads * w.tokens * w.seq_len


def reference(module: Moba, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    d = module.width // module.heads
    C = module.config.block
    q, k, v = (m(x) for m in (module.query, module.key, module.value))
    rows = []
    for i in range(len(x)):
        heads = []
        for h in range(module.heads):
            blocks = [i // C, *draws["choice"][h, i].nonzero()[:, 0].tolist()]
            keys = [j for j in range(i + 1) if j // C in blocks and (mask is None or mask[j])]
            own = slice(h * d, (h + 1) * d)
            A = (k[keys, own] @ q[i, own] / d**0.5).softmax(0)
            heads.append(A @ v[keys, own] if keys else torch.zeros_like(q[i, own]))
        rows.append(torch.cat(heads))
    return module.output(torch.stack(rows))


class Blocked(Moba):
    def read(self, q: Tensor, k: Tensor, v: Tensor, choice: Tensor, mask: Tensor | None) -> Tensor:
        return at.read_chosen(q, k, v, choice, mask, self.config.block)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """The projections; scores of means; then q kᵀ and A v over the blocks that are read."""
        count = config.blocks - 1
        read = at.chosen_flops(w.seq_len, config.block, count, w.heads, w.head_width)
        return at.Flops(at.projection_flops(w), scoring(config, w) + w.batch * read)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """The choice of a byte each, q, k, v and o in other orders."""
        choice = w.heads * w.tokens * -(-w.seq_len // config.block) // 4
        return choice + 8 * w.tokens * w.width


class Flex(at.flex.Chosen, Moba):
    elements = staticmethod(Blocked.elements)

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """The most it may compute: the projections, scores of means, and all visible blocks."""
        visited = super().flops(config, w)
        return replace(visited, core=visited.core + scoring(config, w))


def default(config: Config, w: at.Workload) -> str:
    """On a GPU a loop over blocks mostly waits for the host."""
    fuses = w.device != "cpu" and not w.steps and Flex.needs(config, w) is None
    return "flex" if fuses else "blocked"


def scoring(config: Config, w: at.Workload) -> int:
    """FLOPs of q k̄ᵀ."""
    queries = w.batch * at.scored(w.seq_len, config.block, config.blocks - 1)
    return 2 * queries * -(-w.seq_len // config.block) * w.width


CARD = at.Card(
    forms={"eager": Moba, "blocked": Blocked, "flex": Flex},
    config=Config,
    reference=reference,
    parameters=at.projection_parameters,
    family=at.Family.LEARNED,
    causality=at.Causality.ALWAYS,
    paper=at.Paper(
        "MoBA: Mixture of Block Attention for Long-Context LLMs",
        "Lu et al.",
        2025,
        "arXiv:2502.13189",
    ),
    cost=at.Cost("O(N²/C·d + N·n·C·d)", time=2, memory=2),
    symbols={"n": ("blocks that a query reads", "blocks"), "C": ("tokens of a block", "block")},
    examples=(Config(block=4, blocks=3), Config(block=7, blocks=2, bias=True), Config()),
    default=default,
    launches="without Triton a loop over the blocks of keys",
    waits="without Triton a loop over blocks asks who reads each",
)
