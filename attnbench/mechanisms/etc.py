"""ETC (Ainslie et al., 2020): a few global tokens see all; others see them and their neighbours.

    q, k, v = x W_Q, x W_K, x W_V                                   [B, H, N, d] each
    global i:  keys = all G global and n long tokens                [B, H, G, G + n]
    long i:    keys = long j with |i − j| ≤ r, and all G            [B, H, n, 2 r + 1 + G]
    S_ij = q_i · (k_j + a_ij) / √d      o_i = softmax_j(S_ij) v_j   [B, H, N, d]

a_ij is a learned vector for each head: among tokens of the same kind it depends on the distance,
clipped to ± `clip`; between the kinds there is one vector for each direction. Global tokens have
separate projections unless `shared`. The band is computed in blocks of C queries against C + 2 r
keys and the global keys in one softmax; no n × n tensor exists. Its q_i · a_ij are those of
Transformer-XL with a_ij for R: a product with 2 r + 1 vectors, each row of which is then shifted.

The first min(G, N) tokens of the sequence are the global input, so that a layer keeps their
outputs; n counts the others. In the paper they are a second, shorter input, and a_ij depends on
the structure of the text (both reconstructed here); the paper also offers separate projections for
each of the four pieces. Left out: a causal form, since global tokens see the future.
Source: arXiv:2004.08483, sections 3.2 to 3.4.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from attnbench import attention as at
from attnbench.mechanisms.longformer import windows
from attnbench.mechanisms.transformer_xl import in_pieces, read

BLOCK = 64  # queries of a block


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`global_tokens`: G; `radius`: r; `clip`: largest labelled distance; `shared`."""

    global_tokens: int = 230
    radius: int = 84
    clip: int = 12
    shared: bool = False

    def __post_init__(self) -> None:
        self.require_at_least(1, "global_tokens", "radius")
        self.require_at_least(0, "clip")


class Etc(at.QKVAttention):
    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        H = workload.heads
        D = workload.width
        d = workload.head_width
        self.near = nn.Parameter(0.02 * torch.randn(H, 2 * config.clip + 1, d))
        self.to_global = nn.Parameter(0.02 * torch.randn(H, 1, d))
        self.to_long = nn.Parameter(0.02 * torch.randn(H, 1, d))
        if workload.level is not at.Level.CORE and not config.shared:
            names = ("query_global", "key_global", "value_global", "output_global")
            for name in names:
                self.add_module(name, nn.Linear(D, D, bias=config.bias))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (self.split(self.both(name, x)) for name in ("query", "key", "value"))
        return self.both("output", at.merge(self.attend(q, k, v, mask)))

    def both(self, name: str, x: Tensor) -> Tensor:
        """A projection of all tokens; global tokens use their separate one, if there is one."""
        long = getattr(self, name)
        if self.config.shared:
            return long(x)
        G = self.config.global_tokens
        return torch.cat([getattr(self, f"{name}_global")(x[:, :G]), long(x[:, G:])], 1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        G = min(self.config.global_tokens, q.shape[2])
        o = self.global_rows(G, q[:, :, :G], k, v, mask)
        if q.shape[2] == G:
            return o
        return torch.cat([o, self.long_rows(G, q[:, :, G:], k, v, mask)], 2)

    def global_rows(self, G: int, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """[B, H, G, d] against all keys."""
        q = q / q.shape[-1] ** 0.5
        k = torch.cat([k[:, :, :G], k[:, :, G:] + self.to_long], 2)
        i = torch.arange(G, device=q.device)
        index = self.label(i - i[:, None]).expand(*q.shape[:2], -1, -1)
        near = (q @ self.near.mT).gather(-1, index)  # [B, H, G, G]
        logits = q @ k.mT + pad(near, (0, k.shape[2] - G))
        return at.masked_softmax(logits, at.key_mask(mask)) @ v

    def long_rows(self, G: int, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """[B, H, n, d] against the global keys and those around each block."""
        B, H, n, d = q.shape
        C, r, count = blocks(self.config, n)
        q = pad(q, (0, 0, 0, -n % C)).unflatten(2, (count, C))
        k, v = (around(t[:, :, :G], t[:, :, G:], C, r) for t in (k, v))
        q, k, v = (t.transpose(0, 1).flatten(1, 2) for t in (q, k, v))  # [H, B count, ·, d]
        real = q.new_ones(1, G + n, dtype=torch.bool) if mask is None else mask
        near = pad(real[:, G:], (r, r + -n % C)).unfold(1, C + 2 * r, C)
        real = torch.cat([real[:, None, :G].expand(-1, count, -1), near], 2)
        i = torch.arange(C, device=q.device)[:, None]
        j = torch.arange(-r, C + r, device=q.device)
        band = pad((j - i).abs() <= r, (G, 0), value=True)  # [C, G + C + 2 r]
        allowed = (real[:, :, None] & band).expand(B, -1, -1, -1).reshape(1, B * count, C, -1)
        part = partial(read, True, *q.new_zeros(2, 1, 1, 1))  # no u, no t
        o = in_pieces(part, q, k, v, self.distances(G + C - 1, r), allowed)
        return o.reshape(B, count * C, H, d).transpose(1, 2)[:, :, :n]

    def distances(self, before: int, r: int) -> Tensor:
        """a_ij / √d of keys at −r … r, after `before` global ones: [H, d, ·]."""
        near = self.near[:, self.label(torch.arange(-r, r + 1, device=self.near.device))]
        labels = torch.cat([self.to_global.expand(-1, before, -1), near], 1)
        return labels.mT / labels.shape[-1] ** 0.5

    def label(self, distance: Tensor) -> Tensor:
        """The number of the vector for a distance."""
        return distance.clamp(-self.config.clip, self.config.clip) + self.config.clip

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """S and A v of global and padded long rows; their products with vectors of distances."""
        G = min(config.global_tokens, w.seq_len)
        products = G * (2 * w.seq_len + 2 * config.clip + 1)
        if n := w.seq_len - G:
            C, r, count = blocks(config, n)
            products += 3 * count * C * (G + C + 2 * r)
        return at.Flops(at.projection_flops(w), 2 * w.batch * w.width * products)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """A, of which a forward pass holds pieces, and copies of keys and values."""
        G = min(config.global_tokens, w.seq_len)
        C, r, count = blocks(config, max(1, w.seq_len - G))
        keys = G + C + 2 * r
        scores = w.heads * w.batch * (count * C * keys + G * w.seq_len)
        return scores + 2 * w.batch * w.width * count * keys


def reference(module: Etc, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    H = module.heads
    G = module.config.global_tokens
    config = module.config
    d = module.width // H

    def project(name: str, i: int, token: Tensor) -> Tensor:
        separate = i < G and not config.shared
        return getattr(module, f"{name}_global" if separate else name)(token)

    q, k, v = ([project(n, i, t) for i, t in enumerate(x)] for n in ("query", "key", "value"))
    outputs = []
    for i in range(len(x)):
        keys = [j for j in range(len(x)) if i < G or j < G or abs(i - j) <= config.radius]
        keys = [j for j in keys if mask is None or mask[j]]
        o = torch.zeros_like(x[0]).view(H, d)
        if keys:
            k_i = torch.stack([k[j].view(H, d) + label(module, i, j) for j in keys])
            v_i = torch.stack([v[j].view(H, d) for j in keys])
            weights = ((q[i].view(H, d) * k_i).sum(-1) / d**0.5).softmax(0)
            o = (weights[..., None] * v_i).sum(0)
        outputs.append(project("output", i, o.flatten()))
    return torch.stack(outputs)


def label(module: Etc, i: int, j: int) -> Tensor:
    """a_ij of all heads, [H, d]."""
    G = module.config.global_tokens
    clip = module.config.clip
    if (i < G) == (j < G):
        return module.near[:, max(-clip, min(clip, j - i)) + clip]
    return module.to_long[:, 0] if i < G else module.to_global[:, 0]


def blocks(config: Config, n: int) -> tuple[int, int, int]:
    """C, how many tokens a block reads on either side, and the number of blocks of n tokens."""
    C = min(BLOCK, n)
    return C, min(config.radius, n), -(-n // C)


def around(first: Tensor, long: Tensor, C: int, r: int) -> Tensor:
    """[B, H, G, d] and the tokens around each block of [B, H, n, d]: [B, H, n / C, ·, d]."""
    near = windows(pad(long, (0, 0, 0, -long.shape[2] % C)), C, r, C + 2 * r)
    return torch.cat([first[:, :, None].expand(-1, -1, near.shape[2], -1, -1), near], 3)


def parameters(config: Config, w: at.Workload) -> int:
    """Four or eight projections, and the vectors of 2 clip + 1 distances and two directions."""
    return (
        at.projection_parameters(config, w) * (2 - config.shared) + (2 * config.clip + 3) * w.width
    )


CARD = at.Card(
    forms={"eager": Etc},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.FIXED_MEMORY,
    causality=at.Causality.NEVER,
    paper=at.Paper(
        "ETC: Encoding Long and Structured Inputs in Transformers",
        "Ainslie et al.",
        2020,
        "arXiv:2004.08483",
    ),
    cost=at.Cost("O(G² + N·G + N·r)", time=1, memory=1),
    symbols={
        "G": ("global tokens", "global_tokens"),
        "n_g": ("global tokens", "global_tokens"),
        "r": ("radius of the band", "radius"),
    },
    examples=(
        Config(global_tokens=3, radius=4, clip=2),
        Config(global_tokens=5, radius=50, clip=3, shared=True, bias=True),
        Config(global_tokens=30, radius=7, clip=0, bias=True),
    ),
    no_decode_reason="global tokens read the whole sequence, and all others read them",
)
