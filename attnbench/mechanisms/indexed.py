"""Indexed attention (DeepSeek-V3.2, 2025): an index of small keys chooses what each query reads.

    q^I, k^I = x W_QI, LayerNorm(x W_KI)               [B, I, N, e], [B, N, e]
    w = x W_W                                          [B, I, N]
    s_ij = Σ_h w_ih ReLU(q^I_ih · k^I_j)               "sum"
    s_gij = q^I_ig · k^I_j                             "each": one choice for each head of keys
    o_i = softmax over the chosen keys j ≤ i of (q_i · k_j / √d), times v   [B, H, N, d]

K heads of keys and values serve H / K consecutive heads each. With `kv_rank` they come from a
latent of r + d / 2 numbers instead (`latent`), which all heads read as one key and value, with W_UK
and W_UV inside the core; with `query_rank` queries come from a latent too, RMSNorm(x W_DQ), and q^I
is of it in place of x. The budget is n tokens. With C = 1 a query reads the n tokens of the
largest s. Else it reads blocks of C tokens: its own up to itself, and the n / C − 1 earlier ones of
the largest s. A block's s is its mean key's ("mean"), or its tokens' largest ("max"):

    DeepSeek-V3.2   sum, C = 1, on latents
    GLM-5.3         sum, mean of C = 16, on latents
    Qwen4           sum, mean, on grouped queries
    MiniMax-M3      each, max of C = 128, on grouped queries

Only the choice depends on the index, which therefore gets no gradient: W_QI, W_KI and W_W are
drawn and stay as they are, and no parameters. Models train them by a loss of their own.

`eager` stores all N weights of a query, `sdpa` lets torch's fused kernel read a mask, some queries
at a time: neither gains by the choice. `blocked` goes by block of keys
(`attention.kernels.selection`), `flex` does so by one kernel of torch. The index stays quadratic.
Always causal. For decoding, the state is k and v, or the latent, and k^I of every token, or for
means the sum of every block.

Left out: factors of s that change no choice, rotations by positions, norms of q^I, number types of
a byte for the index, GLM's learned weights of means, Qwen's w of 1, that both choose a block that
ends with the query as any other, and that both read n / C complete blocks besides the query's own
unfinished one, where one less is read here.
Notation: our n is the authors' k, our e their d^I, our I their H^I.
Source: arXiv:2512.02556, equations (1) and (2).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear, pad

from attnbench import attention as at
from attnbench.mechanisms import grouped_query, latent

EPSILON = 1e-6
QUERIES = 256  # of a part that reads one mask


@dataclass(frozen=True, kw_only=True)
class Config(at.OwnHeads, grouped_query.Grouped):
    """`block`: C; `budget`: n; `score`: sum or each; `pool`: mean or max; `index_heads`: I, which
    is K for `each`; `index_width`: e; `kv_heads`: K, which divides H; None: H/4, or the next
    divisor below; `kv_rank`: r; None: no latents; `query_rank`: width of W_DQ;
    None: no W_DQ; `heads`: H; `head_width`: d; None: D / H."""

    block: int = 128
    budget: int = 2048
    score: str = "sum"
    pool: str = "mean"
    index_heads: int = 4
    index_width: int = 32
    kv_rank: int | None = None
    query_rank: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_at_least(1, "kv_heads")
        self.require_at_least(1, "block", "index_heads", "index_width", "kv_rank", "query_rank")
        self.require_at_least(self.block, "budget")
        self.require_one_of("score", ("sum", "each"))
        self.require_one_of("pool", ("mean", "max"))
        if self.kv_rank is not None and self.kv_heads is not None:
            raise ValueError("a latent is one head of keys; leave kv_heads out")
        if self.query_rank is not None and self.kv_rank is None:
            raise ValueError("query_rank is given without kv_rank; give both")

    @property
    def count(self) -> int:
        """Earlier blocks that a query reads."""
        return self.budget // self.block - (self.block > 1)

    @property
    def pooled(self) -> int:
        """Tokens of an index key."""
        return self.block if self.pool == "mean" else 1

    @property
    def base(self) -> Any:
        """The options of what is read."""
        if self.kv_rank is None:
            return grouped_query.Config(bias=self.bias, kv_heads=self.kv_heads)
        return latent.Config(bias=self.bias, kv_rank=self.kv_rank, query_rank=self.query_rank)


class Indexed(at.Choosing):
    drawn: Tensor  # W_QI, W_W and W_KI, or the last two alone
    drawn_queries: Tensor  # W_QI of latents

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        self.base = plain(config)(config.base, workload)
        self.kept = kept(config, workload)
        self.shares = indices(config, workload)[0]
        if workload.level is not at.Level.CORE:
            _, heads = indices(config, workload)
            e = config.index_width
            rank = config.query_rank
            own = 0 if config.query_rank else heads * e
            drawn = torch.randn(own + heads + e, workload.width) / workload.width**0.5
            self.register_buffer("drawn", drawn)
            if rank:
                self.register_buffer("drawn_queries", torch.randn(heads * e, rank) / rank**0.5)

    @staticmethod
    def core_inputs(config: Config, workload: at.Workload) -> tuple[tuple[int, ...], ...]:
        """Shapes of q, k and v, or of q and the latent, of q^I beside w, and of k^I."""
        w = workload
        e = config.index_width
        index = (w.batch, indices(config, w)[1], w.seq_len, e + 1)
        read = plain(config).core_inputs(config.base, w)
        return *read, index, (w.batch, 1, w.seq_len, e)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.base.output(at.merge(self.attend(*self.projected(x), mask)))

    def projected(self, x: Tensor) -> tuple[Tensor, ...]:
        """The tensors of `core_inputs`."""
        e = self.config.index_width
        index = linear(x.detach(), self.drawn)
        keys = layer_norm(index[:, None, :, -e:], (e,), eps=EPSILON)
        index = index[..., :-e]
        if self.config.query_rank:
            latents = self.base.query_latent(x)
            read = self.base.split(self.base.query[-1](latents)), self.base.compressed(x)
            index = torch.cat([linear(latents.detach(), self.drawn_queries), index], -1)
        else:
            read = self.base.projected(x)
        heads = index.shape[-1] // (e + 1)
        q = index[..., : heads * e].unflatten(-1, (heads, e))
        weights = index[..., heads * e :]
        queries = torch.cat([q, weights[..., None]], -1).transpose(1, 2)
        return *read, queries, keys

    def attend(self, *inputs: Any) -> Tensor:
        """Tensors of `core_inputs` and a mask [B, N] or None to [B, H, N, d]."""
        q, *read, index, keys, mask = inputs
        c = self.config
        keys = at.widen(keys)
        single = mask
        if c.pool == "mean":
            keys = at.block_means(keys, mask, c.block)
            single = None
        choice = self.choice = at.choose(
            lambda part, _: self.scores(part, keys, single),
            index,
            keys.shape[2],
            self.shares,
            c.count,
            c.block,
            at.real_blocks(mask, c.block),
        )
        return self.through(q, lambda q: self.read(q, *by_head(*read), choice, mask))

    def through(self, q: Tensor, read: Callable[[Tensor], Tensor]) -> Tensor:
        """What a reader of keys and values gives, or one of latents between W_UK and W_UV."""
        if self.config.kv_rank is None:
            return read(q)
        return self.base.from_latent(read(self.base.onto_latent(q)))

    def scores(self, index: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        """s [B, K or 1, n, M] of q^I beside w [B, I, n, e + 1] and means or single k^I."""
        s = at.widen(index[..., :-1]) @ keys.mT
        if self.config.score == "sum":
            s = (s.relu() * index[..., -1:]).sum(1, keepdim=True)
        if mask is not None:
            s = s.masked_fill(~mask[:, None, None], -torch.inf)
        if self.config.pool == "max":
            C = self.config.block
            s = pad(s, (0, -s.shape[-1] % C), value=-torch.inf).unflatten(-1, (-1, C)).amax(-1)
        return s

    def start(self, batch: int, capacity: int) -> at.State:
        c = self.config
        like = self.base.output.weight
        K, width = self.kept
        k = like.new_empty(batch, K, capacity, width)
        v = like.new_empty(batch, K, capacity, 0 if c.kv_rank else width)
        sums = like.new_zeros(batch, 1, -(-capacity // c.pooled), c.index_width)
        return at.ChosenState(k, v, at.widen(sums) if c.pooled > 1 else sums, 0)

    def prefill(self, x: Tensor, state: at.State) -> tuple[Tensor, at.State]:
        _, *read, _, keys = inputs = self.projected(x)
        kept = at.ChosenState(*state).added(*by_head(*read), keys, self.config.pooled)
        return self.base.output(at.merge(self.attend(*inputs, None))), kept

    def step(self, x: Tensor, state: at.State) -> tuple[Tensor, at.State]:
        c = self.config
        q, *read, index, keys = self.projected(x)
        kept = at.ChosenState(*state).added(*by_head(*read), keys, c.pooled)
        last = kept.length - 1
        # keys that are not there yet are later than the query
        s = self.scores(index, at.widen(kept.sums) / c.pooled, None)
        choice = at.top_blocks(s, c.count, last, c.block)
        o = self.through(q, lambda q: at.read_next(q, *kept.held(), choice, c.count, c.block))
        return self.base.output(at.merge(o)), kept

    @staticmethod
    def state_elements(config: Config, workload: at.Workload) -> int:
        w = workload
        K, width = kept(config, workload)
        read = (1 if config.kv_rank else 2) * w.seq_len * K * width
        return w.batch * (read + -(-w.seq_len // config.pooled) * config.index_width)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """The projections; the index; then q kᵀ and A v over all keys."""
        read = 4 * w.tokens * w.heads * w.seq_len * kept(config, w)[1]
        return at.Flops(projections(config, w), scoring(config, w) + read)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 3 * w.heads * w.tokens * w.seq_len


def reference(module: Indexed, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    C = module.config.block
    H = module.heads
    shares = len(draws["choice"])
    heads = []
    for h, (q, k, v) in enumerate(source(module.config).heads_of(module.base, x)):
        outputs = []
        for i in range(len(x)):
            chosen = draws["choice"][h * shares // H, i].nonzero()[:, 0].tolist()
            blocks = [*chosen, i // C] if C > 1 else chosen
            keys = [j for j in range(i + 1) if j // C in blocks and (mask is None or mask[j])]
            A = (k[keys] @ q[i] / len(q[i]) ** 0.5).softmax(0)
            outputs.append(A @ v[keys] if keys else torch.zeros_like(v[i]))
        heads.append(torch.stack(outputs))
    return module.base.output(torch.cat(heads, -1))


class Sdpa(Indexed):
    def read(self, q: Tensor, k: Tensor, v: Tensor, choice: Tensor, mask: Tensor | None) -> Tensor:
        def part(first: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            """The outputs of queries from token `first` on."""
            own = choice[:, :, first : first + QUERIES]
            keys = k.shape[2]
            allowed = at.allowed_tokens(own, first, keys, self.config.block)
            if mask is not None:
                allowed = allowed & mask[:, None, None, :keys]
            if (shares := allowed.shape[1]) > 1:
                allowed = allowed.repeat_interleave(q.shape[1] // shares, 1)
            return at.fused_attention(q, k, v, allowed)

        # the backward pass reads it again, whatever became of the caller's
        mask = None if mask is None else mask.clone()
        return at.ByQueries.apply(part, QUERIES, q, k, v)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """As eager, without the keys after each part of the queries."""
        N = w.seq_len
        B = QUERIES
        pairs = sum(min(B, N - first) * min(first + B, N) for first in range(0, N, B))
        read = 4 * w.batch * w.heads * pairs * kept(config, w)[1]
        return at.Flops(projections(config, w), scoring(config, w) + read)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """The choice, its scores or the masks of a part, q and o."""
        shares, _ = indices(config, w)
        _, width = kept(config, w)
        masks = 2 * w.batch * (w.heads if shares > 1 else 1) * QUERIES * w.seq_len
        choice, scores = choosing(config, w)
        return choice + max(masks, scores) + 2 * w.tokens * w.heads * width


class Blocked(Indexed):
    def read(self, q: Tensor, k: Tensor, v: Tensor, choice: Tensor, mask: Tensor | None) -> Tensor:
        return at.read_chosen(q, k, v, choice, mask, self.config.block)

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        return None if config.block > 1 else "single tokens are no blocks; use indexed:sdpa"

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """The projections; the index; then q kᵀ and A v over the blocks that are read."""
        width = kept(config, w)[1]
        read = at.chosen_flops(w.seq_len, config.block, config.count, w.heads, width)
        return at.Flops(projections(config, w), scoring(config, w) + w.batch * read)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """The choice; then its scores, or q, k, v and o in other orders."""
        choice, scores = choosing(config, w)
        return choice + max(scores, 8 * w.tokens * w.heads * kept(config, w)[1])


class Flex(at.flex.Chosen, Indexed):
    elements = staticmethod(Blocked.elements)

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        return Blocked.needs(config, w) or at.flex.Chosen.needs(config, w)

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """The most it may compute: the projections, the index, and all visible blocks."""
        read = super().flops(config, w).core * kept(config, w)[1] // w.head_width
        return at.Flops(projections(config, w), scoring(config, w) + read)


def by_head(k: Tensor, v: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """k and v by head of keys; a latent [B, N, r + d / 2] alone is both of one head."""
    return (k[:, None], k[:, None]) if v is None else (k, v)


def source(config: Config) -> Any:
    """The mechanism of the keys and values, or of the latents."""
    return grouped_query if config.kv_rank is None else latent


def plain(config: Config) -> Any:
    """Its form that all keys are read by."""
    return source(config).CARD.forms["eager"]


def kept(config: Config, w: at.Workload) -> tuple[int, int]:
    """K, and the width of a head of keys."""
    if config.kv_rank is None:
        return grouped_query.kv_heads(config, w), w.head_width
    return 1, sum(latent.widths(config.base, w))


def indices(config: Config, w: at.Workload) -> tuple[int, int]:
    """Choices of a token, and I."""
    K, _ = kept(config, w)
    return (K, K) if config.score == "each" else (1, config.index_heads)


def projections(config: Config, w: at.Workload) -> int:
    """FLOPs of those to what is read and from it, and of W_QI, W_W and W_KI."""
    e = config.index_width
    _, heads = indices(config, w)
    rank = config.query_rank or w.width
    index = 2 * w.tokens * (rank * heads * e + w.width * (heads + e))
    return plain(config).flops(config.base, w).projections + index


def scoring(config: Config, w: at.Workload) -> int:
    """FLOPs of q^I k^Iᵀ, and of W_UK and W_UV."""
    keys = -(-w.seq_len // config.pooled)
    queries = w.batch * at.scored(w.seq_len, config.block, config.count)
    index = 2 * queries * keys * indices(config, w)[1] * config.index_width
    return index + (latent.expansion_flops(config.kv_rank, w) if config.kv_rank else 0)


def choosing(config: Config, w: at.Workload) -> tuple[int, int]:
    """Elements of the choice, of a byte each and twice as its parts are joined; and of scores.

    Those are of a part of the queries that choose, or of all that have nothing to choose.
    """
    shares, heads = indices(config, w)
    blocks = -(-w.seq_len // config.block)
    keys = -(-w.seq_len // config.pooled)
    choosers = at.scored(w.seq_len, config.block, config.count)
    numbers = w.batch * choosers * keys * heads
    rest = w.batch * (w.seq_len - choosers) * blocks * shares
    part = at.part_elements(w, numbers, 3 if config.score == "sum" else 5) if choosers else 0
    choice = shares * w.tokens * blocks // 2
    return choice // (1 + w.trains), max(part, 4 * rest // (1 + w.trains))


def parameters(config: Config, w: at.Workload) -> int:
    """Those of what is read."""
    return source(config).parameters(config.base, w)


def default(config: Config, w: at.Workload) -> str:
    """A mask is cheaper where a query reads most keys, and the only way to read single tokens.

    On a GPU a loop over blocks mostly waits for the host; latents are wider than its kernel takes.
    """
    if config.block == 1 or w.seq_len <= 2 * config.budget:
        return "sdpa"
    if w.device == "cpu" or w.steps:
        return "blocked"
    return "sdpa" if config.kv_rank or Flex.needs(config, w) else "flex"


CARD = at.Card(
    forms={"eager": Indexed, "sdpa": Sdpa, "blocked": Blocked, "flex": Flex},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.LEARNED,
    causality=at.Causality.ALWAYS,
    paper=at.Paper(
        "DeepSeek-V3.2: Pushing the Frontier of Open Large Language Models",
        "DeepSeek-AI",
        2025,
        "arXiv:2512.02556",
    ),
    cost=at.Cost("O(N²/C·I·e + N·n·d)", time=2, memory=2),
    symbols={
        "C": ("tokens of a block", "block"),
        "I": ("heads of the index", "index_heads"),
        "e": ("width of the index", "index_width"),
        "n": ("tokens that a query reads", "budget"),
    },
    examples=(
        Config(block=4, budget=12, kv_heads=2, index_width=3),
        Config(block=1, budget=5, kv_heads=1, index_heads=2, index_width=5, bias=True),
        Config(block=6, budget=18, score="each", pool="max", kv_heads=2, index_width=4),
        Config(block=4, budget=12, kv_rank=5, index_width=3, bias=True),
        Config(block=4, budget=12, kv_heads=2, index_width=3, heads=6, head_width=5),
        Config(block=1, budget=6, kv_rank=5, query_rank=7, index_width=3, heads=3, head_width=6),
        Config(),
    ),
    default=default,
    launches="without Triton 256 queries at a time, which score all keys before them",
    needs=grouped_query.needs,
)
