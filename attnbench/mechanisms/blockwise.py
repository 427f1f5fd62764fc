"""BlockBERT (Qiu et al., 2019): in each head, a block of queries attends to one block of keys.

    q, k, v = x W_Q, x W_K, x W_V                                  [B, H, N, d] each
    q, k, v in n blocks of b = ⌈N / n⌉ tokens                      [B, n, H, b, d]
    A_i = softmax(q_i k_{π(i)}ᵀ / √d)                              [B, n, H, b, b]
    o_i = A_i v_{π(i)}, blocks joined again                        [B, H, N, d]

π is a permutation of the n blocks, one for each head, fixed across calls. `cyclic` uses shifts:
most heads attend to their own block (shift 0), and each of the other n − 1 shifts gets a sixth of
the heads, the paper's 10:2 and 8:2:2 of 12 heads. `random` draws a permutation for each head from
`seed`. The cost remains quadratic, divided by n. `sdpa` uses a fused kernel for each pair of
blocks, which stores no scores.

Left out: a causal form, as the paper's encoder has none and a shifted block may lie ahead.
Reconstructed: with fewer heads than shifts, the largest shifts get no head.
Source: arXiv:1911.02972, section 3.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from attnbench import attention as at


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`blocks`: n; `permutation`: cyclic or random; `seed`: of the random permutations."""

    blocks: int = 2
    permutation: str = "cyclic"
    seed: int = 0

    def __post_init__(self) -> None:
        self.require_at_least(1, "blocks")
        self.require_one_of("permutation", ("cyclic", "random"))


class Blockwise(at.QKVAttention):
    kernel: at.Kernel = staticmethod(at.softmax_attention)

    pi: Tensor  # [H, n]

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        permutations = {"cyclic": cyclic, "random": drawn}[config.permutation]
        self.register_buffer("pi", permutations(config, workload.heads), persistent=False)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        B, H, N, _ = q.shape
        n = self.config.blocks
        b = -(-N // n)
        q, k, v = (
            F.pad(x.transpose(1, 2), (0, 0, 0, 0, 0, n * b - N))
            .unflatten(1, (n, b))
            .transpose(2, 3)
            for x in (q, k, v)
        )  # [B, n, H, b, d]
        heads = torch.arange(H, device=q.device)
        k, v = (x[:, self.pi.T, heads] for x in (k, v))
        keys = at.padded_mask(mask, N, n * b - N, q.device)
        if keys is not None:
            keys = keys.unflatten(1, (n, b))[:, self.pi.T, None].expand(B, -1, -1, -1, -1)
            keys = keys.flatten(0, 1)  # [B n, H, 1, b]
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        o = self.kernel(q, k, v, keys)  # [B n, H, b, d]
        return o.transpose(1, 2).reshape(B, n * b, H, -1)[:, :N].transpose(1, 2)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """q kᵀ and A v of n pairs of blocks, padding included."""
        b = -(-w.seq_len // config.blocks)
        return at.Flops(at.projection_flops(w), 4 * w.batch * config.blocks * b * b * w.width)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 2 * w.heads * w.tokens * -(-w.seq_len // config.blocks) + 2 * w.tokens * w.width


def reference(module: Blockwise, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    N = len(x)
    H = module.heads
    d = module.width // module.heads
    n = module.config.blocks
    b = (N + n - 1) // n
    q, k, v = (linear(x).view(N, H, d) for linear in (module.query, module.key, module.value))
    o = torch.zeros_like(q)
    for h in range(H):
        for i in range(N):
            block = int(module.pi[h, i // b])
            keys = [j for j in range(N) if j // b == block and (mask is None or mask[j])]
            if keys:
                o[i, h] = (k[keys, h] @ q[i, h] / d**0.5).softmax(0) @ v[keys, h]
    return module.output(o.flatten(1))


class Sdpa(Blockwise):
    kernel = staticmethod(at.fused_attention)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 2 * w.tokens * w.width + w.heads * w.tokens


def cyclic(config: Config, heads: int) -> Tensor:
    """[H, n]: in head h, block i attends to block i + shift(h), modulo n."""
    n = config.blocks
    share = max(1, heads // 6)
    shifted = min((n - 1) * share, heads - 1)
    shifts = [0] * (heads - shifted) + [1 + i // share for i in range(shifted)]
    return (torch.arange(n) + torch.tensor(shifts)[:, None]) % n


def drawn(config: Config, heads: int) -> Tensor:
    """[H, n]: a permutation of the blocks for each head, from the seed alone."""
    generator = torch.Generator().manual_seed(config.seed)
    rows = [torch.randperm(config.blocks, generator=generator) for _ in range(heads)]
    return torch.stack(rows)


CARD = at.Card(
    forms={"eager": Blockwise, "sdpa": Sdpa},
    config=Config,
    reference=reference,
    parameters=at.projection_parameters,
    family=at.Family.FIXED,
    causality=at.Causality.NEVER,
    paper=at.Paper(
        "Blockwise Self-Attention for Long Document Understanding",
        "Qiu et al.",
        2019,
        "arXiv:1911.02972",
    ),
    cost=at.Cost("O(N²·d/n)", time=2, memory=2),
    symbols={"n": ("blocks", "blocks")},
    examples=(
        Config(),
        Config(blocks=5, bias=True),
        Config(blocks=3, permutation="random", seed=4),
    ),
    default="sdpa",
    exempt={at.Exemption.EXTRA_PADDING: "blocks are N / n tokens long"},
    no_decode_reason="a permuted block may read a later one",
)
