"""Mixture of experts (Shazeer et al., 2017): a router sends each token to a few feed-forwards.

    s = softmax(W_r x)                                 [B, N, E]
    y = Σ_e s_e / Σ s · FFN_e(x)                       over the K largest s_e, [B, N, D]
    y = y + σ(w x) FFN_s(x)                            with an expert that all tokens share

A token passes through K of E feed-forwards of width I; which ones follows from W_r, and here that
is random, so that tokens spread over the experts almost evenly. Weights of all E are in memory. A
step of one token reads K of them; many tokens together read most.

`eager` computes one expert after the other, for the tokens that it has, as the layers of
transformers are written. `grouped` sorts the tokens by expert and multiplies each group in one call
of torch's grouped_mm, which transformers 5 uses unless told otherwise.
Left out: limits to groups of experts, corrections of s, and factors of y; they add no product.

Notation: our I is `inner`, E `number`, K `used`; `shared` is the width of FFN_s.
Source: arXiv:1701.06538, equations (1) to (5), without noise; arXiv:2401.04088, section 2.1.
"""

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnbench import attention as at
from attnbench.mechanisms.feeds import feed_forward
from attnbench.mechanisms.feeds.activations import ACTIVATIONS, gated
from attnbench.mechanisms.feeds.feed_forward import EachToken, FeedForward, affine, weights_of

DRAWN = 1 << 22  # numbers of a weight that are drawn, as all would take long; others repeat them
ALIGNED = 16  # bytes of which grouped_mm wants each row to be a multiple


@dataclass(frozen=True, kw_only=True)
class Config(feed_forward.Config):
    """`number`: E; `used`: K; `inner`: I; None: 4 D; `gate`, `activation`: of each expert;
    `shared`: width of an expert of all tokens, 0 without one; `shared_gate`: whether σ(w x) scales
    that; `bias`: also of the router."""

    number: int = 8
    used: int = 2
    shared: int = 0
    shared_gate: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_at_least(1, "number", "used")
        self.require_at_least(0, "shared")
        if self.used > self.number:
            raise ValueError(f"used is {self.used}; a token has at most the {self.number} experts")
        if self.shared_gate and not self.shared:
            raise ValueError("shared_gate needs an expert that all tokens share; give shared")

    @property
    def of_all(self) -> feed_forward.Config:
        """The expert that all tokens share, as a feed-forward."""
        return feed_forward.Config(
            inner=self.shared, gate=self.gate, activation=self.activation, bias=self.bias
        )


class Experts(EachToken):
    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        D = workload.width
        E = config.number
        inner = config.width(workload)
        wide = (2 if config.gate else 1) * inner
        dtype = getattr(torch, workload.dtype)
        self.router = nn.Linear(D, E, bias=config.bias)
        self.up = drawn((E, wide, D), dtype)
        self.down = drawn((E, D, inner), dtype)
        self.up_bias = drawn((E, wide), dtype) if config.bias else None
        self.down_bias = drawn((E, D), dtype) if config.bias else None
        self.shared = FeedForward(config.of_all, workload) if config.shared else None
        self.shared_gate = nn.Linear(D, 1, bias=False) if config.shared_gate else None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        tokens = x.flatten(0, 1)  # [T, D]
        y = self.dispatched(tokens, *self.routed(tokens)).view_as(x)
        if self.shared is None:
            return y
        common = self.shared(x)
        if self.shared_gate is not None:
            common = self.shared_gate(x).sigmoid() * common
        return y + common

    def routed(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The weights of the experts of each token and their numbers, [T, K] each."""
        scores = at.widen(self.router(tokens)).softmax(-1)
        weights, chosen = scores.topk(self.config.used, dim=-1)
        return (weights / weights.sum(-1, keepdim=True)).to(tokens.dtype), chosen

    def dispatched(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """Each token through its experts, [T, D]."""
        y = torch.zeros_like(tokens)
        for number in chosen.unique().tolist():
            token, rank = (chosen == number).nonzero(as_tuple=True)
            h = functional.linear(tokens[token], self.up[number], of(self.up_bias, number))
            down = self.down[number]
            o = functional.linear(self.activated(h), down, of(self.down_bias, number))
            y = y.index_add(0, token, o * weights[token, rank, None])
        return y

    def activated(self, h: Tensor) -> Tensor:
        """φ of what an expert's first product gives, [..., I or 2 I] to [..., I]."""
        if not self.config.gate:
            return ACTIVATIONS[self.config.activation](h)
        return gated(self.config.activation, *h.chunk(2, -1))

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """The router, K experts of each token, and the shared one with its gate."""
        matrices = 3 if config.gate else 2
        inner = config.used * config.width(w) + config.shared
        of_token = w.width * (config.number + matrices * inner + config.shared_gate)
        return at.Flops(2 * w.tokens * of_token, 0)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """What all experts of all tokens take, give, and have in between."""
        inner = config.width(w)
        between = (4 if config.gate else 2) * max(inner, config.shared // config.used)
        return w.tokens * (config.used * (between + 3 * w.width) + 3 * config.number)


class Grouped(Experts):
    def dispatched(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        K = self.config.used
        numbers, order = chosen.flatten().sort()  # [T K]
        ends = numbers.bincount(minlength=self.config.number).cumsum(0).int()  # [E]
        h = functional.grouped_mm(tokens[order // K], self.up.mT, offs=ends)
        if self.up_bias is not None:
            h = h + self.up_bias[numbers]
        o = functional.grouped_mm(self.activated(h), self.down.mT, offs=ends)  # [T K, D]
        if self.down_bias is not None:
            o = o + self.down_bias[numbers]
        o = o * weights.flatten()[order, None]
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        return o[back].view(-1, K, o.shape[-1]).sum(1)

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if not hasattr(functional, "grouped_mm"):
            return f"torch {torch.__version__} has no grouped_mm"
        if w.dtype == "float64":
            return "torch's grouped_mm has no float64"
        item = getattr(torch, w.dtype).itemsize
        if w.width * item % ALIGNED or config.width(w) * item % ALIGNED:
            return f"torch's grouped_mm wants rows of a multiple of {ALIGNED} bytes"
        return None


def of(biases: Tensor | None, number: int) -> Tensor | None:
    """The bias of an expert."""
    return None if biases is None else biases[number]


def drawn(shape: tuple[int, ...], dtype: torch.dtype) -> nn.Parameter:
    """A weight of random numbers between ±1/√inputs; those of a large one repeat.

    It is made in its own type, since a wider copy may not fit into memory. All of it is written, so
    that its pages are its own and reading it costs as much as if no number repeated.
    """
    bound = shape[-1] ** -0.5
    weight = torch.empty(prod(shape), dtype=dtype)
    own = torch.empty(min(DRAWN, len(weight))).uniform_(-bound, bound)
    for part in weight.split(DRAWN):
        part.copy_(own[: len(part)])
    return nn.Parameter(weight.view(shape))


def reference(module: Experts, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    rows = []
    for token in x:
        s = affine(module.router, token).softmax(-1)
        chosen = s.argsort(descending=True)[: module.config.used]
        y = torch.zeros_like(token)
        for e in chosen:
            y = y + s[e] / s[chosen].sum() * expert(module, int(e), token)
        if module.shared is not None:
            common = feed_forward.reference(module.shared, token[None], None, {})[0]
            if module.shared_gate is not None:
                common = common * affine(module.shared_gate, token).sigmoid()
            y = y + common
        rows.append(y)
    return torch.stack(rows)


def expert(module: Experts, e: int, x: Tensor) -> Tensor:
    """FFN_e of one token."""
    h = (module.up[e] * x).sum(-1)
    if module.up_bias is not None:
        h = h + module.up_bias[e]
    h = module.activated(h)
    y = (module.down[e] * h).sum(-1)
    return y if module.down_bias is None else y + module.down_bias[e]


def parameters(config: Config, w: at.Workload) -> int:
    """The router, all experts, and the shared one with its gate."""
    D = w.width
    experts = config.number * weights_of(D, config.width(w), config)
    router = config.number * (D + config.bias)
    shared = weights_of(D, config.shared, config) if config.shared else 0
    return router + experts + shared + D * config.shared_gate


def default(config: Config, w: at.Workload) -> str:
    return "grouped" if Grouped.needs(config, w) is None else "eager"


CARD = at.Card(
    forms={"eager": Experts, "grouped": Grouped},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.UNKNOWN,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper(
        "Outrageously Large Neural Networks", "Shazeer et al.", 2017, "arXiv:1701.06538"
    ),
    cost=at.Cost("O(N·D·(E + K·I))", 1, 1),
    symbols={
        "E": ("experts", "number"),
        "K": ("experts of a token", "used"),
        "I": ("the width of an expert", "inner"),
    },
    examples=(
        Config(number=6, used=2, inner=16),
        Config(number=5, used=2, inner=16, activation="clamped", bias=True),
        Config(number=6, used=3, inner=16, shared=24, shared_gate=True),
        Config(number=4, used=1, inner=16, gate=False, activation="relu2", shared=8),
    ),
    default=default,
    uncompiled="how many tokens an expert has follows from the numbers",
    waits="which experts have tokens decides what is computed next",
    tolerance=at.Tolerance(
        bfloat16=0.6, float16=0.6, reason="of two experts with like scores another may be chosen"
    ),
    exempt={at.Exemption.NO_VALID_KEY: "no token reads another, so none lacks a valid key"},
)
