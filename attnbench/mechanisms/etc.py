"""ETC (Ainslie et al., 2020): a few global tokens see all; others see them and their neighbours.

    q, k, v = x W_Q, x W_K, x W_V                                   [B, H, N, d] each
    global i:  keys = all G global and n long tokens                [B, H, G, G + n]
    long i:    keys = long j with |i − j| ≤ r, and all G            [B, H, n, 2 r + 1 + G]
    S_ij = q_i · (k_j + a_ij) / √d      o_i = softmax_j(S_ij) v_j   [B, H, N, d]

a_ij is a learned vector for each head: among tokens of the same kind it depends on the distance,
clipped to ± `clip`; between the kinds there is one vector for each direction. Global tokens have
separate projections unless `shared`. The band is computed in blocks of min(r, n) queries against
three blocks of keys and the global keys in one softmax; no n × n tensor exists. Where r exceeds n,
all long tokens see each other.

The first min(G, N) tokens of the sequence are the global input, so that a layer keeps their
outputs; n counts the others. In the paper they are a second, shorter input, and a_ij depends on
the structure of the text (both reconstructed here); the paper also offers separate projections for
each of the four pieces. Left out: a causal form, since global tokens see the future.
Source: arXiv:2004.08483, sections 3.2 to 3.4.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnbench import attention as at


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
        H, D, d = workload.heads, workload.width, workload.head_width
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
        q = q / q.shape[-1] ** 0.5
        o = self.global_rows(G, q[:, :, :G], k, v, mask)
        if q.shape[2] == G:
            return o
        return torch.cat([o, self.long_rows(G, q[:, :, G:], k, v, mask)], 2)

    def global_rows(self, G: int, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """[B, H, G, d] against all keys."""
        k = torch.cat([k[:, :, :G], k[:, :, G:] + self.to_long], 2)
        i = torch.arange(G, device=q.device)
        near = self.labelled(q, i - i[:, None])  # [B, H, G, G]
        logits = q @ k.mT + nn.functional.pad(near, (0, k.shape[2] - G))
        return at.masked_softmax(logits, at.key_mask(mask)) @ v

    def long_rows(self, G: int, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """[B, H, n, d] against three blocks of their neighbours and the global keys."""
        n, device = q.shape[2], q.device
        r = min(self.config.radius, n)
        count = -(-n // r)
        q = nn.functional.pad(q, (0, 0, 0, count * r - n)).unflatten(2, (count, r))
        k = torch.cat([neighbours(k[:, :, G:], r), spread(k[:, :, :G] + self.to_global, count)], 3)
        v = torch.cat([neighbours(v[:, :, G:], r), spread(v[:, :, :G], count)], 3)
        i, j = torch.arange(r, device=device)[:, None], torch.arange(-r, 2 * r, device=device)
        position = j + r * torch.arange(count, device=device)[:, None, None]  # [count, 1, 3 r]
        band = (
            ((j - i).abs() <= self.config.radius) & (position >= 0) & (position < n)
        )  # [count, r, 3 r]
        allowed = torch.cat([band, band.new_ones(count, r, G)], 2)
        if mask is not None:
            keys = mask[:, None, :, None]
            keys = torch.cat([neighbours(keys[:, :, G:], r), spread(keys[:, :, :G], count)], 3)
            allowed = allowed & keys.mT  # [B, 1, count, r, 3 r + G]
        logits = q @ k.mT  # [B, H, count, r, 3 r + G]
        logits[..., : 3 * r] += self.labelled(q, j - i)
        if mask is None:  # each row has global keys
            A = logits.add_(at.additive(allowed, logits.dtype)).softmax(-1)
        else:
            A = at.masked_softmax(logits, allowed)
        return (A @ v).flatten(2, 3)[:, :, :n]

    def labelled(self, q: Tensor, distance: Tensor) -> Tensor:
        """q_i · a_ij by clipped distance: [B, H, ..., n, d] and [n, n'] to [B, H, ..., n, n']."""
        clip = self.config.clip
        near = self.near.view(self.heads, *[1] * (q.dim() - 4), *self.near.shape[1:])
        index = (distance.clamp(-clip, clip) + clip).expand(*q.shape[:-1], -1)
        return (q @ near.mT).gather(-1, index)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """S and A v of the global rows and the padded long rows, and their distance vectors."""
        G = min(config.global_tokens, w.seq_len)
        n = w.seq_len - G
        r = min(config.radius, n)
        rows = -(-n // r) * r if n else 0
        pairs = G * w.seq_len + rows * (3 * r + G)
        labels = (G + rows) * (2 * config.clip + 1)
        return at.Flops(at.projection_flops(w), 2 * w.batch * w.width * (2 * pairs + labels))

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        G = min(config.global_tokens, w.seq_len)
        r = min(config.radius, w.seq_len)
        return 2 * w.heads * w.tokens * (3 * r + 2 * G) + w.tokens * w.width * (6 + 2 * G // r)


def reference(module: Etc, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    H, G, config = module.heads, module.config.global_tokens, module.config
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
    G, clip = module.config.global_tokens, module.config.clip
    if (i < G) == (j < G):
        return module.near[:, max(-clip, min(clip, j - i)) + clip]
    return module.to_long[:, 0] if i < G else module.to_global[:, 0]


def neighbours(x: Tensor, r: int) -> Tensor:
    """[B, H, n, d] to the three blocks around each block of r, [B, H, count, 3 r, d]."""
    after = r + -x.shape[2] % r
    return nn.functional.pad(x, (0, 0, r, after)).unfold(2, 3 * r, r).mT


def spread(x: Tensor, count: int) -> Tensor:
    """[B, H, G, d] to [B, H, count, G, d], a view."""
    return x[:, :, None].expand(-1, -1, count, -1, -1)


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
