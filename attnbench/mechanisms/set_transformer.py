"""Set Transformer (Lee et al., 2019): m learned points attend to the set, and the set to them.

    MAB(X, Y) = O + relu(O W_o)      O = Q + merge(softmax(Q Kᵀ / √D) V)
    Q = X W_Q      K = Y W_K      V = Y W_V
    ISAB(X) = MAB(X, H)              H = MAB(I, X)              [B, N, D], [B, m, D]
    SAB(X)  = MAB(X, X)                                            [B, N, D]
    PMA(X)  = MAB(S, relu(X W_r))                                  [B, m, D]

The residual inside a block is the projected query, and the scale uses the whole width D, not that
of a head; both as in the authors' code. `norm` adds a LayerNorm after each of the two sums: the
paper prints them, but the authors' code omits them by default. `block` selects one of the three;
each is a complete layer here. PMA returns m vectors per set: token i receives vector i mod m, so
that the layer has the same shape as the others.

`folded` is exact: the points' queries are fixed, so the projections of the first block apply to m
points instead of N tokens,
    logits = (I W_Q)_h (W_K)_hᵀ Xᵀ      [H m, D] by [B, D, N]
    O_h = (softmax(logits) X) (W_V)_h   [B, m, D] by [D, d]
and K and V of the set are never stored. `sdpa` computes softmax(Q Kᵀ) V by torch's fused kernel.

Left out: a causal form; a set has no order.
Source: arXiv:1810.00825, equations (6) to (11).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnbench import attention as at

BLOCKS = ("isab", "sab", "pma")


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`block`: isab, sab or pma; `points`: m, inducing points or seeds; `norm`: LayerNorms."""

    block: str = "isab"
    points: int = 16
    norm: bool = False

    def __post_init__(self) -> None:
        self.require_one_of("block", BLOCKS)
        self.require_at_least(1, "points")


class Block(at.Projections):
    """The parameters of one MAB."""

    def __init__(self, config: Config, D: int) -> None:
        super().__init__(D, config.bias)
        self.norm_attention = nn.LayerNorm(D) if config.norm else nn.Identity()
        self.norm_output = nn.LayerNorm(D) if config.norm else nn.Identity()


class SetTransformer(at.Attention):
    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        D = workload.width
        self.block = Block(config, D)  # attends to the set
        if config.block != "sab":
            self.points = nn.Parameter(nn.init.xavier_uniform_(torch.empty(config.points, D)))
        if config.block == "isab":
            self.answer = Block(config, D)
        if config.block == "pma":
            self.feed = nn.Linear(D, D, bias=config.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        match self.config.block:
            case "sab":
                return self.mab(self.block, self.block.query(x), x, mask)
            case "isab":
                return self.mab(self.answer, self.answer.query(x), self.gather(x, mask), None)
        seeds = self.gather(self.feed(x).relu(), mask)  # [B, m, D]
        N = x.shape[1]
        m = seeds.shape[1]
        return seeds.repeat(1, -(-N // m), 1)[:, :N] if m > 1 else seeds.expand(-1, N, -1)

    def gather(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """What the points read from the set, [B, m, D]."""
        return self.mab(self.block, self.block.query(self.points)[None], x, mask)

    def mab(self, block: Block, q: Tensor, y: Tensor, mask: Tensor | None) -> Tensor:
        """MAB of the projected queries q and of y, [B, ·, D] each."""
        k = self.split(block.key(y))
        v = self.split(block.value(y))
        return self.finish(block, q, at.merge(self.attend(self.split(q), k, v, mask)))

    def finish(self, block: Block, q: Tensor, o: Tensor) -> Tensor:
        """The block's residual and feed-forward part: [B, ·, D] twice to [B, ·, D]."""
        o = block.norm_attention(q + o)
        return block.norm_output(o + block.output(o).relu_())

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """[B, H, ·, d] three times to [B, H, ·, d]; the shorter of q and k is scaled."""
        scale = self.width**-0.5
        q, k = (q * scale, k) if q.shape[2] < k.shape[2] else (q, k * scale)
        return at.masked_softmax(q @ k.mT, at.key_mask(mask)) @ v

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """The projections of the tokens; those of the m points, q kᵀ and a v of each block."""
        m = config.points
        D = w.width
        points = 2 * m * D * D * (1 + w.batch)  # W_Q of the points once, W_o of each sequence
        products = 2 * (2 * w.tokens * m * D)
        match config.block:
            case "sab":
                return at.Flops(at.projection_flops(w), 2 * (2 * w.tokens * w.seq_len * D))
            case "isab":
                points += 2 * (2 * w.batch * m * D * D)
                return at.Flops(at.projection_flops(w), points + 2 * products)
        return at.Flops(at.projection_flops(w, 3), points + products)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        keys = w.seq_len if config.block == "sab" else config.points
        return 2 * w.heads * w.tokens * keys


def reference(module: SetTransformer, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    kind = module.config.block
    real = [i for i in range(len(x)) if mask is None or mask[i]]
    if kind == "sab":
        return mab(module, module.block, x, x[real])
    if kind == "isab":
        return mab(module, module.answer, x, mab(module, module.block, module.points, x[real]))
    seeds = mab(module, module.block, module.points, module.feed(x[real]).clamp(min=0))
    return torch.stack([seeds[i % len(seeds)] for i in range(len(x))])


def mab(module: SetTransformer, block: Block, x: Tensor, y: Tensor) -> Tensor:
    """One block: x [n, D] attends to y [n', D]."""
    D = module.width
    H = module.heads
    q = block.query(x)
    k = block.key(y)
    v = block.value(y)
    parts = [slice(h * D // H, (h + 1) * D // H) for h in range(H)]
    rows = []
    for q_i in q:
        heads = [(k[:, p] @ q_i[p] / D**0.5).softmax(0) @ v[:, p] for p in parts]
        o = block.norm_attention(q_i + torch.cat(heads))
        rows.append(block.norm_output(o + block.output(o).clamp(min=0)))
    return torch.stack(rows)


class Sdpa(SetTransformer):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        attend = nn.functional.scaled_dot_product_attention
        q = q.expand(len(k), -1, -1, -1)
        if mask is None:
            return attend(q, k, v, scale=self.width**-0.5)
        o = attend(q, k, v, attn_mask=at.key_mask(mask), scale=self.width**-0.5)
        return o.masked_fill(~mask.any(-1)[:, None, None, None], 0)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return w.heads * w.tokens


class Folded(SetTransformer):
    def gather(self, x: Tensor, mask: Tensor | None) -> Tensor:
        B = len(x)
        H = self.heads
        D = self.width
        block = self.block
        q = self.block.query(self.points)[None]  # [1, m, D]
        scaled = self.split(q)[0] / D**0.5  # [H, m, d]
        points = (scaled @ block.key.weight.view(H, -1, D)).flatten(0, 1)  # [H m, D]
        logits = self.logits(scaled, points.expand(B, -1, -1), x)  # [B, H m, N]
        a = at.masked_softmax(logits, None if mask is None else mask[:, None])
        pooled = (a @ x).view(B, H, -1, D)
        o = pooled @ block.value.weight.view(H, -1, D).mT  # [B, H, m, d]
        if block.value.bias is not None:
            # the weights of an empty set sum to 0, of any other to 1
            o = o + a.sum(-1).view(B, H, -1, 1) * block.value.bias.view(H, 1, -1)
        return self.finish(block, q, at.merge(o))

    def logits(self, scaled: Tensor, points: Tensor, x: Tensor) -> Tensor:
        if self.block.key.bias is None:
            return points @ x.mT
        shift = scaled @ self.block.key.bias.view(self.heads, -1, 1)  # [H, m, 1]
        return points @ x.mT + shift.view(-1, 1)

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if config.block == "sab":
            return "block=sab has no fixed queries to fold; use set_transformer:sdpa"
        return None

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """Two projections of tokens (PMA: one); two products with H m points; their projections."""
        m = config.points
        D = w.width
        thin = 2 * (2 * w.tokens * w.heads * m * D)
        points = 2 * m * D * D * (2 + 2 * w.batch) + 2 * m * D * config.bias
        if config.block == "pma":
            return at.Flops(at.projection_flops(w, 1), thin + points)
        answer = 2 * (2 * w.tokens * m * D) + 2 * (2 * w.batch * m * D * D)
        return at.Flops(at.projection_flops(w, 2), thin + points + answer)


def parameters(config: Config, w: at.Workload) -> int:
    """Four projections per block (ISAB: two blocks), m points, PMA's W_r, two LayerNorms (4 D)."""
    D = w.width
    projections = {"sab": 4, "isab": 8, "pma": 5}[config.block]
    blocks = 2 if config.block == "isab" else 1
    points = 0 if config.block == "sab" else config.points
    return projections * D * (D + config.bias) + points * D + blocks * 4 * D * config.norm


def default(config: Config, w: at.Workload) -> str:
    """Folded where that is less work: not for many points and heads or short sequences."""
    if config.block == "sab":
        return "sdpa"
    plain = SetTransformer.flops(config, w)
    folded = Folded.flops(config, w)
    fewer = folded.projections + folded.core < plain.projections + plain.core
    return "folded" if fewer else "eager"


CARD = at.Card(
    forms={"eager": SetTransformer, "sdpa": Sdpa, "folded": Folded},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.MEMORY,
    causality=at.Causality.NEVER,
    paper=at.Paper(
        "Set Transformer: A Framework for Attention-based Permutation-Invariant Neural Networks",
        "Lee et al.",
        2019,
        "arXiv:1810.00825",
    ),
    cost=at.Cost("O(N·m)", time=1, memory=1),
    symbols={"m": ("inducing points", "points"), "k": ("inducing points", "points")},
    examples=(
        Config(points=5),
        Config(points=50, bias=True, norm=True),
        Config(block="sab", bias=True),
        Config(block="pma", points=3, bias=True, norm=True),
    ),
    default=default,
    tolerance=at.Tolerance(
        float16=0.3,
        bfloat16=0.3,
        reason="values that round across the 0 of ReLU gain or lose their whole gradient",
    ),
    no_decode_reason="its inducing points read the whole set, and a set has no order",
)
