"""Star-Transformer (Guo et al., 2019): a ring of satellite nodes with one central relay node.

    h⁰ = x      s⁰ = mean(x)                                    [B, N, D], [B, D]
    C_i = [h_{i−1}; h_i; h_{i+1}; x_i; s]                          [B, N, 5, D]
    h_i ← LayerNorm(ReLU(MultiHead(h_i, C_i)))                     [B, N, D]
    s ← LayerNorm(ReLU(MultiHead(s, [s; h_1; …; h_N])))               [B, D]

`iterations` times with the same parameters, satellites first; the output is h. The ring closes:
the last real token is a neighbour of the first. The last update of s would change nothing and is
omitted, so a single iteration needs no relay projections.
Keys and values are projected once for each node. `eager` copies them into the five of each
context; `folded` is exact and copies none: it multiplies queries with shifted views, one of five
at a time, and folds W_K into the relay's one query and W_V into its one weighted sum, so that K
and V of all satellites are never computed for it.

Left out: a causal form, as the relay reads all tokens; position embeddings.
Reconstructed: all iterations share parameters, and there are two by default.
Source: arXiv:1902.09113, section 3, algorithm 1.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbench import attention as at


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`iterations`: T, the number of updates of ring and relay."""

    iterations: int = 2

    def __post_init__(self) -> None:
        self.require_at_least(1, "iterations")


Ring = tuple[Tensor, Tensor]  # [B, N] each: the tokens before and after every token


class Node(at.Projections):
    """The four projections and the norm of one kind of node."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__(width, bias)
        self.norm = nn.LayerNorm(width)

    def updated(self, o: Tensor) -> Tensor:
        """[..., H, d] to [..., D]."""
        return self.norm(self.output(o.flatten(-2)).relu())


class StarTransformer(at.Attention):
    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        self.satellite = Node(self.width, config.bias)
        if config.iterations > 1:
            self.relay = Node(self.width, config.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        ring = None if mask is None else neighbours(mask)
        tokens = [self.by_head(f(x)) for f in (self.satellite.key, self.satellite.value)]
        h = x
        s = mean(x, mask)
        for remaining in reversed(range(self.config.iterations)):
            h = self.update_satellites(h, tokens, s, ring, first=h is x)
            if remaining:
                s = self.update_relay(s, h, mask)
        return h

    def by_head(self, x: Tensor) -> Tensor:
        """[..., D] to [..., H, d]."""
        return x.unflatten(-1, (self.heads, -1))

    def update_satellites(
        self, h: Tensor, tokens: list[Tensor], s: Tensor, ring: Ring | None, *, first: bool
    ) -> Tensor:
        """Each satellite attends to its context: [B, N, D] and s [B, 1, D] to [B, N, D].

        `tokens`: the keys and the values of x, [B, N, H, d] each.
        """
        linears = (self.satellite.key, self.satellite.value)
        # before the first update h is x, so its keys and values exist already
        nodes = tokens if first else [self.by_head(f(h)) for f in linears]
        k, v = (
            self.context(node, token, self.by_head(f(s)), ring)
            for node, token, f in zip(nodes, tokens, linears, strict=True)
        )
        q = self.by_head(self.satellite.query(h)) / k[0].shape[-1] ** 0.5  # [B, N, H, d]
        return self.satellite.updated(self.mixed(q, k, v))

    def context(self, node: Tensor, token: Tensor, s: Tensor, ring: Ring | None) -> list[Tensor]:
        """[B, N, H, d] twice and [B, 1, H, d] to the five of each satellite, [B, N, H, d] each."""
        if ring is None:
            closed = torch.cat([node[:, -1:], node, node[:, :1]], 1)
            # three views of one tensor, so that training keeps one
            before = closed[:, :-2]
            node = closed[:, 1:-1]
            after = closed[:, 2:]
        else:
            before, after = (node.gather(1, i[:, :, None, None].expand_as(node)) for i in ring)
        return [before, node, after, token, s.expand_as(node)]

    def mixed(self, q: Tensor, k: list[Tensor], v: list[Tensor]) -> Tensor:
        """[B, N, H, d] and five keys and values of that shape to [B, N, H, d]."""
        weights = (q[..., None, :] @ torch.stack(k, -1)).softmax(-1)  # [B, N, H, 1, 5]
        return (weights @ torch.stack(v, 3)).squeeze(-2)

    def update_relay(self, s: Tensor, h: Tensor, mask: Tensor | None) -> Tensor:
        """The relay attends to itself and all satellites: [B, 1, D] to [B, 1, D]."""
        nodes = torch.cat([s, h], 1)  # [B, 1 + N, D]
        q, k, v = (
            self.split(f(t))
            for f, t in ((self.relay.query, s), (self.relay.key, nodes), (self.relay.value, nodes))
        )
        keys = None if mask is None else F.pad(mask, (1, 0), value=True)
        o = at.softmax_attention(q, k, v, at.key_mask(keys))  # [B, H, 1, d]
        return self.relay.updated(o.transpose(1, 2))

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """All projections of tokens and relay; 5 keys per satellite, and N + 1 of the relay."""
        T = config.iterations
        D = w.width
        satellites = (4 * T * w.tokens + 2 * T * w.batch) * 2 * D * D
        relay = (T - 1) * (2 * (w.tokens + w.batch) + 2 * w.batch) * 2 * D * D
        core = T * 5 * w.tokens + (T - 1) * (w.tokens + w.batch)
        return at.Flops(satellites + relay, 4 * core * D)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 10 * w.tokens * w.width + 10 * w.tokens * w.heads


def reference(module: StarTransformer, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    real = [i for i in range(len(x)) if mask is None or mask[i]]
    h = {i: x[i] for i in real}
    s = x[real].sum(0) / max(1, len(real))
    for turn in range(module.config.iterations):
        if turn:
            s = multi_head(module.relay, module.heads, s, [s, *h.values()])
        new = {}
        for n, i in enumerate(real):
            ring = [h[real[n - 1]], h[i], h[real[(n + 1) % len(real)]]]
            new[i] = multi_head(module.satellite, module.heads, h[i], [*ring, x[i], s])
        h = new
    return torch.stack([h.get(i, torch.zeros_like(x[0])) for i in range(len(x))])


def multi_head(node: Node, heads: int, token: Tensor, context: list[Tensor]) -> Tensor:
    d = len(token) // heads
    rows = torch.stack(context)
    q = node.query(token)
    k = node.key(rows)
    v = node.value(rows)
    parts = [slice(h * d, (h + 1) * d) for h in range(heads)]
    o = [(k[:, p] @ q[p] / d**0.5).softmax(0) @ v[:, p] for p in parts]
    return node.norm(node.output(torch.cat(o)).relu())


class Folded(StarTransformer):
    def mixed(self, q: Tensor, k: list[Tensor], v: list[Tensor]) -> Tensor:
        logits = torch.stack([(q * key).sum(-1) for key in k], -1)  # [B, N, H, 5]
        weights = logits.softmax(-1)[..., None].unbind(-2)
        o = weights[0] * v[0]
        for a, value in zip(weights[1:], v[1:], strict=True):
            o = o + a * value
        return o

    def update_relay(self, s: Tensor, h: Tensor, mask: Tensor | None) -> Tensor:
        key = self.relay.key
        value = self.relay.value
        d = self.width // self.heads
        q = self.split(self.relay.query(s)) / d**0.5  # [B, H, 1, d]
        u = (q @ key.weight.unflatten(0, (-1, d))).squeeze(2)  # [B, H, D]
        logits = torch.cat([u @ s.mT, u @ h.mT], -1)  # [B, H, 1 + N]
        if key.bias is not None:
            logits = logits + (q.squeeze(2) * key.bias.view(-1, d)).sum(-1, keepdim=True)
        keys = None if mask is None else F.pad(mask, (1, 0), value=True)[:, None]
        weights = at.masked_softmax(logits, keys)
        pooled = weights[..., :1] @ s + weights[..., 1:] @ h  # [B, H, D]
        o = (value.weight.unflatten(0, (-1, d)) @ pooled[..., None]).squeeze(-1)  # [B, H, d]
        o = o if value.bias is None else o + value.bias.view(-1, d)
        return self.relay.updated(o[:, None])

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """All projections, the relay's of one token; its products. The ring's are elementwise."""
        T = config.iterations
        D = w.width
        satellites = (4 * T * w.tokens + 2 * T * w.batch) * 2 * D * D
        relay = (T - 1) * 4 * w.batch * 2 * D * D
        return at.Flops(satellites + relay, (T - 1) * 4 * (w.tokens + w.batch) * w.heads * D)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 5 * w.tokens * w.width + 10 * w.tokens * w.heads


def mean(x: Tensor, mask: Tensor | None) -> Tensor:
    """[B, N, D] to [B, 1, D] over real tokens; 0 where there are none."""
    if mask is None:
        return x.mean(1, keepdim=True)
    real = mask[..., None]
    return (x * real).sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)


def neighbours(mask: Tensor) -> Ring:
    """The real tokens before and after every token, around the ring."""
    N = mask.shape[1]
    i = torch.arange(N, device=mask.device).expand_as(mask)
    before = F.pad(i.where(mask, -1).cummax(1).values, (1, 0), value=-1)
    after = F.pad(i.where(mask, N).flip(1).cummin(1).values.flip(1), (0, 1), value=N)
    first = after[:, :1]
    last = before[:, -1:]
    before = before[:, :-1]
    after = after[:, 1:]
    before = before.where(before >= 0, last)
    after = after.where(after < N, first)
    return before.clamp(min=0), after.clamp(max=N - 1)


def parameters(config: Config, w: at.Workload) -> int:
    """Four projections and a norm for the satellites, and for the relay if it is updated."""
    kinds = 1 if config.iterations == 1 else 2
    return kinds * (at.projection_parameters(config, w) + 2 * w.width)


CARD = at.Card(
    forms={"eager": StarTransformer, "folded": Folded},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.FIXED_MEMORY,
    causality=at.Causality.NEVER,
    paper=at.Paper("Star-Transformer", "Guo et al.", 2019, "arXiv:1902.09113"),
    cost=at.Cost("O(N·d)", time=1, memory=1),
    examples=(Config(), Config(iterations=3, bias=True), Config(iterations=1)),
    default="folded",
    tolerance=at.Tolerance(
        float16=0.3,
        bfloat16=0.3,
        reason="values that round across the 0 of ReLU gain or lose their whole gradient",
    ),
    no_decode_reason="its relay reads the whole sequence, and all tokens read the relay",
)
