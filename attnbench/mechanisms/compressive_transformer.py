"""Compressive Transformer (Rae et al., 2019): a memory whose oldest tokens are kept compressed.

    h̃ = [SG(slots); SG(memory); segment]                      [B, C + M + L, D]
    attention of Transformer-XL over h̃, distances counted in positions of h̃  [B, N, D]
    leaving tokens X_b [L, D] of each segment: slots f_c(X_b)                [L / c, D]

`compression` is f_c: `mean` or `max` of c neighbours each; `conv`, a projection of c neighbours
[c D to D]; `dilated`, the same projection of c tokens that are L / c apart; `most_used`, which
keeps the L / c tokens that received most attention, over all heads, while they were in memory.

The task loss does not train f_c: slots carry no gradient, and `auxiliary_loss` is the paper's
attention reconstruction, the mean squared difference between what a segment reads from the tokens
that leave after it and what it reads from their slots, by content alone; it trains f_c only. Slots
that no segment of the sequence reads are not computed and add no loss.

Segments are processed as in Transformer-XL: a layer's memories come from its inputs, so equal
segments run together. Only `most_used` runs them one by one, as its choice depends on the scores.

For decoding, the state is k and v of the memory, the segment and the slots, W_r R_p of as many
distances, and x of memory and segment. A segment becomes slots in the last step before it leaves.

Reconstructed: `dilated`, for which the paper gives no sizes; means replace the paper's norms.
Notation: our L, M, C are the paper's n_s, n_m, n_cm. Always causal.
Source: arXiv:1911.05507, algorithms 1 and 2.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnbench import attention as at
from attnbench.mechanisms import transformer_xl as xl
from attnbench.mechanisms.transformer_xl import Parts

COMPRESSIONS = ("conv", "dilated", "max", "mean", "most_used")
LEARNED = ("conv", "dilated")


@dataclass(frozen=True, kw_only=True)
class Config(xl.Config):
    """`segment`: L; `memory`: M; `compressed`: C, slots; `rate`: c; `compression`: f_c."""

    segment: int = 512
    memory: int = 512
    compressed: int = 512
    rate: int = 2
    compression: str = "conv"

    def __post_init__(self) -> None:
        self.require_one_of("compression", COMPRESSIONS)
        self.require_at_least(1, "segment", "rate")
        self.require_at_least(0, "memory", "compressed")
        if self.segment % self.rate or self.memory % self.segment:
            raise ValueError("rate must divide segment, and segment must divide memory")
        if self.compression == "most_used" and not self.memory:
            raise ValueError("most_used counts reads from the memory; memory=0 has none")


class Kept(NamedTuple):
    """What a sequence keeps; `tokens` are the last M + L, in rings, and `slots` the last C + L / c.

    `past` is x of the tokens, [B, M + L, D]; for `most_used` the attention that they received while
    in memory, [B, M + L]. When a segment ends, the oldest one that it read becomes slots.
    """

    k: Tensor  # of tokens, [B, H, M + L, d]
    v: Tensor
    old_k: Tensor  # of slots, [B, H, C + L / c, d]
    old_v: Tensor
    R: Tensor  # as `distances` returns them
    past: Tensor
    length: int  # the number of past tokens

    @property
    def tokens(self) -> at.Cache:
        return at.Cache(self.k, self.v, 0, self.length)

    @property
    def slots(self) -> at.Cache:
        return at.Cache(self.old_k, self.old_v, 0, 0)


class CompressiveTransformer(xl.TransformerXL):
    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        self.loss: Tensor | None = None
        self.kept: Tensor | None = None
        self.used: Tensor | None = None
        if config.compression in LEARNED:
            D = workload.width
            self.compress = nn.Linear(config.rate * D, D, bias=config.bias)

    def swept(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        q = self.split(self.query(x))
        k: Parts = self.recalled(self.key, x)
        v: Parts = self.recalled(self.value, x)
        masks: Parts | None = None if mask is None else (mask, mask)
        self.loss = self.kept = None
        evicted = leaving(self.config, x.shape[1])
        if counts(self.config):
            o, self.used = self.one_by_one(q, k, v, masks)
            return self.output(o.flatten(2)), k[0], v[0]
        if evicted:
            slots, real = self.slots(x[:, :evicted].detach(), mask)
            k = (*k, self.split(self.key(slots.detach())))
            v = (*v, self.split(self.value(slots.detach())))
            masks = None if mask is None or real is None else (mask, mask, real)
            if self.training and self.config.compression in LEARNED:
                self.loss = self.reconstruction(q, k, v, slots, masks)
        return self.output(self.sweep(q, k, v, masks).flatten(2)), k[0], v[0]

    def start(self, batch: int, capacity: int) -> at.State:
        config = self.config
        D = self.width
        like = self.key.weight
        span = min(config.memory + config.segment, capacity)
        slots = slots_after(config, capacity)
        sizes = span, min(slots, config.compressed + config.segment // config.rate)
        tokens, old = (at.caches.empty(like, batch, self.heads, n, D // self.heads) for n in sizes)
        R = self.distances(span + min(slots, config.compressed), tokens.k).contiguous()
        past = (
            at.widen(like.new_zeros(batch, span))
            if counts(config)
            else like.new_zeros(batch, span, D)
        )
        return Kept(tokens.k, tokens.v, old.k, old.v, R, past, 0)

    def prefill(self, x: Tensor, state: at.State) -> tuple[Tensor, at.State]:
        kept = Kept(*state)
        N = x.shape[1]
        y, k, v = self.swept(x, None)
        kept.tokens.added(k, v)
        past = x if self.used is None else self.used
        span = kept.past.shape[1]
        last = torch.arange(max(0, N - span), N, device=x.device)
        kept.past[:, last % span] = past[:, last].to(kept.past.dtype)
        end = slots_after(self.config, N) * self.config.rate
        L = self.config.segment
        ring = kept.old_k.shape[2] * self.config.rate
        first = max(0, end - -(-ring // L) * L)  # what the ring holds, in whole segments
        if first < end:
            parts = (past[:, first:end], k[:, :, first:end], v[:, :, first:end])
            old = kept.slots._replace(length=first // self.config.rate)
            old.added(*self.compacted(*parts))
        return y, kept._replace(length=N)

    def step(self, x: Tensor, state: at.State) -> tuple[Tensor, at.State]:
        kept = Kept(*state)
        q, k, v = self.projected(x)
        i = kept.length
        tokens = kept.tokens.added(k, v)
        first = xl.first_read(self.config, i)
        count = slots_after(self.config, i)
        slots = kept.slots._replace(length=count)
        pieces = slots.since(max(0, count - self.config.compressed)) + tokens.since(first)
        o, A = self.read_next(q, pieces, kept.R)
        kept = kept._replace(past=self.noted(kept.past, x, A, first, i), length=i + 1)
        if slots_after(self.config, i + 1) > count:
            start = count * self.config.rate % kept.past.shape[1]
            leaver = slice(start, start + self.config.segment)
            parts = (kept.past[:, leaver], kept.k[:, :, leaver], kept.v[:, :, leaver])
            slots.added(*self.compacted(*parts))
        return self.output(at.merge(o)), kept

    def noted(self, past: Tensor, x: Tensor, A: Tensor, first: int, i: int) -> Tensor:
        """`Kept.past` after token i, which read from `first` on with weights A."""
        span = past.shape[1]
        L = self.config.segment
        if not counts(self.config):
            past[:, i % span] = x[:, 0]
            return past
        memory = torch.arange(first, i - i % L, device=x.device)
        used = xl.received(A.transpose(0, 1))[:, 0, A.shape[-1] - (i + 1 - first) :]
        past = past.index_add(1, memory % span, used[:, : len(memory)])
        past[:, i % span] = 0
        return past

    def compacted(self, past: Tensor, k: Tensor, v: Tensor) -> at.Piece:
        """k and v of the slots of whole segments, from what is kept of their tokens."""
        if not counts(self.config):
            slots, _ = self.slots(past, None)
            return self.split(self.key(slots)), self.split(self.value(slots))
        used = past.unflatten(1, (-1, self.config.segment))
        rows = self.busiest(used, torch.ones_like(used, dtype=torch.bool))
        start = torch.arange(used.shape[1], device=k.device) * self.config.segment
        index = (rows + start[:, None]).flatten(1)[:, None, :, None]
        return k.take_along_dim(index, 2), v.take_along_dim(index, 2)

    @staticmethod
    def state_elements(config: Any, workload: at.Workload) -> int:
        """k and v of tokens and slots and what is kept of each token, and W_r R_p."""
        N = workload.seq_len
        span = min(config.memory + config.segment, N)
        slots = slots_after(config, N)
        ring = min(slots, config.compressed + config.segment // config.rate)
        row = 2 * (span + ring) * workload.width + span * (1 if counts(config) else workload.width)
        return workload.batch * row + (span + min(slots, config.compressed)) * workload.width

    @staticmethod
    def layout(config: Any, seq_len: int) -> list[xl.Group]:
        L = min(config.segment, seq_len)
        return xl.groups(seq_len, L, config.memory, config.compressed, config.rate)

    def slots(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """f_c of the evicted tokens, [B, n, D], and which slots have a real token, [B, n]."""
        x = self.neighbours(x)  # [B, n, c, D]
        real = None
        if mask is not None:
            real = self.neighbours(mask[:, : x.shape[1] * x.shape[2], None])  # [B, n, c, 1]
            x = x * real
        match self.config.compression:
            case "mean":
                slots = x.mean(2) if real is None else x.sum(2) / real.sum(2).clamp(min=1)
            case "max":
                slots = x.amax(2)
                if real is not None:
                    lowest = x.masked_fill(~real, torch.finfo(x.dtype).min).amax(2)
                    slots = torch.where(real.any(2), lowest, 0)
            case _:
                slots = self.compress(x.flatten(2))
        return slots, None if real is None else real.any(2)[..., 0]

    def neighbours(self, x: Tensor) -> Tensor:
        """[B, n · c, D] to the tokens of each slot, [B, n, c, D]."""
        c = self.config.rate
        if self.config.compression != "dilated":
            return x.unflatten(1, (-1, c))
        step = self.config.segment // c
        return x.unflatten(1, (-1, c, step)).transpose(2, 3).flatten(1, 2)

    def reconstruction(
        self, q: Tensor, k: Parts, v: Parts, slots: Tensor, masks: Parts | None
    ) -> Tensor:
        """The loss of f_c: what segments read from tokens about to leave, and from their slots."""
        M = self.config.memory
        L = self.config.segment
        n = slots.shape[1]
        evicted = n * self.config.rate
        added = L // self.config.rate
        new = []
        for linear in (self.key, self.value):
            bias = None if linear.bias is None else linear.bias.detach()
            projected = nn.functional.linear(slots, linear.weight.detach(), bias)
            new.append(blocks(self.split(projected), added))
        old = [blocks(t[1][:, :, :evicted].detach(), L) for t in (k, v)]
        q = blocks(q[:, :, M : M + evicted].detach(), L)
        before = after = None
        if masks is not None:
            before = blocks(masks[1][:, None, :evicted, None], L).mT
            after = blocks(masks[2][:, None, :, None], added).mT
        error = read(q, new[0], new[1], after) - read(q, old[0], old[1], before)
        error = error.square().mean((1, 3))  # [B · segments, L]
        if masks is None:
            return error.mean()
        real = masks[0][:, M : M + evicted].reshape(error.shape)
        return (error * real).sum() / real.sum().clamp(min=1)

    def one_by_one(
        self, q: Tensor, k: Parts, v: Parts, masks: Parts | None
    ) -> tuple[Tensor, Tensor]:
        """All segments in order for `most_used`, [B, N, H, d], and what each token was used [B, N].

        Records which tokens are kept.
        """
        L = self.config.segment
        memory = self.config.memory // self.config.segment
        real = torch.ones_like(q[:, 0, :, 0], dtype=torch.bool) if masks is None else masks[0]
        # split once: the backward pass of each slice would fill a whole tensor
        new, old = (
            list(zip(*(t.split(L, 2) for t in (k[n], v[n], real[:, None, :, None])), strict=True))
            for n in (0, 1)
        )
        R = self.distances(max(g.keys for g in self.layout(self.config, q.shape[2])), q)
        outputs: list[Tensor] = []
        slots: list[list[Tensor]] = []
        kept: list[Tensor] = []
        used: list[Tensor] = []
        for s, q_s in enumerate(q.split(L, 2)):
            first = max(0, s - memory)
            k_s, v_s, seen = self.reach(slots, [*old[first:s], new[s]])
            allowed = at.causal_mask(q_s.shape[2], k_s.shape[2], q.device)
            if masks is not None:
                allowed = allowed & seen.mT.transpose(0, 1)
            R_s = R[:, :, R.shape[2] - k_s.shape[2] :]
            q_s, k_s, v_s = (t.transpose(0, 1) for t in (q_s, k_s, v_s))
            given = (q_s, k_s, v_s, R_s, self.u, self.v, allowed)
            real = new[s][2][:, 0, :, 0]
            o, use = xl.Read.apply(self.keeps_weights, *given, real)
            assert use is not None, "counted where `real` is given"
            outputs.append(o.movedim(0, 2))
            used.append(use.new_zeros(len(use), L))
            for n in range(first, s):
                start = use.shape[1] - q_s.shape[2] - (s - n) * L
                used[n] = used[n] + use[:, start : start + L]
            leaver = s - memory  # the segment that leaves the memory
            if 0 <= leaver * L < leaving(self.config, q.shape[2]):
                rows = self.busiest(used[leaver], old[leaver][2][:, 0, :, 0])  # [B, L / c]
                index = rows[:, None, :, None]
                slots.append([t.take_along_dim(index, 2) for t in old[leaver]])
                kept.append(rows + leaver * L)
        self.kept = torch.cat(kept, 1) if kept else None
        return torch.cat(outputs, 1), torch.cat(used, 1)[:, : q.shape[2]]

    def reach(self, slots: list[list[Tensor]], segments: list[tuple[Tensor, ...]]) -> list[Tensor]:
        """Keys, values and mask that a segment reads: the last C slots, the memory and itself."""
        count = -(-self.config.compressed * self.config.rate // self.config.segment)
        parts = []
        for n in range(3):
            part = [torch.cat([s[n] for s in slots[-count:]], 2)] if slots else []
            part = [t[:, :, -self.config.compressed :] for t in part]
            parts.append(torch.cat([*part, *(s[n] for s in segments)], 2))
        return parts

    def busiest(self, used: Tensor, real: Tensor) -> Tensor:
        """The L / c most used tokens of a segment [B, L], in order of position: [B, L / c]."""
        top = used.masked_fill(~real, -1).topk(self.config.segment // self.config.rate)
        return top.indices.sort(-1).values

    def auxiliary_loss(self) -> Tensor | None:
        return self.loss

    def draws(self, index: int) -> at.Draws:
        """`kept` [slots]: the tokens that `most_used` turned into slots."""
        return {} if self.kept is None else {"kept": self.kept[index]}

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if w.level is at.Level.CORE:
            return "the compressed memory is computed from x, so there is no separate core"
        return xl.TransformerXL.needs(config, w)

    @staticmethod
    def flops(config: Any, w: at.Workload) -> at.Flops:
        """Those of Transformer-XL; f_c, W_k and W_v of the slots; the loss in training."""
        core = CompressiveTransformer.products(config, w)
        D = w.width
        evicted = leaving(config, w.seq_len)
        slots = evicted // config.rate
        learned = config.compression in LEARNED
        if config.compression != "most_used":
            core += 2 * (2 * w.batch * slots * D * D)
        if learned:
            core += 2 * w.batch * evicted * D * D
        if learned and w.trains:
            read = config.segment + config.segment // config.rate
            core += 2 * (2 * w.batch * slots * D * D) + 2 * (2 * w.batch * evicted * read * D)
        return at.Flops(at.projection_flops(w), core)

    @staticmethod
    def elements(config: Any, w: at.Workload) -> int:
        return xl.stored(CompressiveTransformer.layout(config, w.seq_len), w)


def reference(
    module: CompressiveTransformer, x: Tensor, mask: Tensor | None, draws: at.Draws
) -> Tensor:
    config = module.config
    H = module.heads
    d = module.width // H
    slots = compressed(module, x.detach(), mask, draws)
    rows = []
    for i in range(len(x)):
        start = i // config.segment * config.segment
        first = max(0, start - config.memory)
        count = first // config.rate
        row = [slots[s] for s in range(max(0, count - config.compressed), count)]
        row += [x[j].detach() if mask is None or mask[j] else None for j in range(first, start)]
        row += [x[j] if mask is None or mask[j] else None for j in range(start, i + 1)]
        real = [n for n, token in enumerate(row) if token is not None]
        o = torch.zeros(H, d, dtype=x.dtype)
        if real:
            read = torch.stack([token for token in row if token is not None])
            k = module.key(read)
            v = module.value(read)
            far = [xl.sinusoid(len(row) - 1 - n, module.width, x) for n in real]
            k, v, r = (t.view(-1, H, d) for t in (k, v, module.position(torch.stack(far))))
            q = module.query(x[i]).view(H, d)
            logits = ((q + module.u[:, 0]) * k).sum(-1) + ((q + module.v[:, 0]) * r).sum(-1)
            o = ((logits / d**0.5).softmax(0)[..., None] * v).sum(0)
        rows.append(o.flatten())
    return module.output(torch.stack(rows))


class Recomputed(CompressiveTransformer):
    keeps_weights = False

    @staticmethod
    def elements(config: Any, w: at.Workload) -> int:
        return xl.working(CompressiveTransformer.layout(config, w.seq_len), w)


def leaving(config: Config, seq_len: int) -> int:
    """Number of tokens at the start of the sequence that some segment reads as slots."""
    last = (seq_len - 1) // config.segment * config.segment
    return max(0, last - config.memory) if config.compressed else 0


def slots_after(config: Config, tokens: int) -> int:
    """How many slots exist after this number of tokens."""
    old = tokens - tokens % config.segment - config.memory
    return max(0, old) // config.rate if config.compressed else 0


def counts(config: Config) -> bool:
    """Whether tokens become slots by the attention that they received."""
    return config.compression == "most_used"


def blocks(x: Tensor, size: int) -> Tensor:
    """[B, H, n, d] to [B · n / size, H, size, d]."""
    return x.unflatten(2, (-1, size)).transpose(1, 2).flatten(0, 1)


def read(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax attention of [n, H, L, d] over [n, H, P, d]; 0 where no key is real."""
    attend = nn.functional.scaled_dot_product_attention
    if mask is None:
        return attend(q, k, v)
    any_key = mask.any(-1, keepdim=True)
    return attend(q, k, v, attn_mask=mask | ~any_key) * any_key


def compressed(
    module: CompressiveTransformer, x: Tensor, mask: Tensor | None, draws: at.Draws
) -> list[Tensor | None]:
    """The slots of one sequence in order; None where a slot has only padding tokens."""
    config = module.config
    slots: list[Tensor | None] = []
    c = config.rate
    L = config.segment
    for s in range(leaving(config, len(x)) // c):
        tokens = list(range(s * c, s * c + c))
        if config.compression == "dilated":
            block, row = divmod(s, L // c)
            tokens = [block * L + row + n * (L // c) for n in range(c)]
        if config.compression == "most_used":
            tokens = [int(draws["kept"][s])]
        real = [j for j in tokens if mask is None or mask[j]]
        if not real:
            slots.append(None)
        elif config.compression == "max":
            slots.append(torch.stack([x[j] for j in real]).max(0).values)
        elif config.compression in LEARNED:
            row = [x[j] if j in real else torch.zeros_like(x[j]) for j in tokens]
            slots.append(module.compress(torch.cat(row)).detach())
        else:
            slots.append(x[real].sum(0) / len(real))
    return slots


def parameters(config: Config, w: at.Workload) -> int:
    """Those of Transformer-XL, and c D × D where f_c is learned."""
    compress = w.width * (config.rate * w.width + config.bias)
    return xl.parameters(config, w) + (config.compression in LEARNED) * compress


def default(config: Config, w: at.Workload) -> str:
    """Recomputed where training would otherwise keep more than 0.5 GiB of float32 scores."""
    return "recomputed" if CompressiveTransformer.elements(config, w) > 1 << 27 else "eager"


CARD = at.Card(
    forms={"eager": CompressiveTransformer, "recomputed": Recomputed},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.RECURRENCE,
    causality=at.Causality.ALWAYS,
    paper=at.Paper(
        "Compressive Transformers for Long-Range Sequence Modelling",
        "Rae et al.",
        2019,
        "arXiv:1911.05507",
    ),
    cost=at.Cost("O(N·(L + M + C))", time=1, memory=1),
    symbols={
        "L": ("tokens of a segment", "segment"),
        "M": ("tokens of memory", "memory"),
        "C": ("slots of compressed memory", "compressed"),
    },
    examples=(
        Config(segment=4, memory=4, compressed=3, bias=True),
        Config(segment=6, memory=6, compressed=6, rate=3, compression="dilated"),
        Config(segment=4, memory=8, compressed=2, rate=4, compression="max"),
        Config(segment=5, memory=0, compressed=4, rate=1, compression="mean"),
        Config(segment=4, memory=4, compressed=8, compression="most_used"),
    ),
    default=default,
    launches="training computes scores twice, in pieces, each of which fills the GPU",
)
