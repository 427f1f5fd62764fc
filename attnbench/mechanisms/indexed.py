"""Indexed attention (DeepSeek-V3.2, 2025): an index of small keys chooses what each query reads.

    q^I, k^I = x W_QI, LayerNorm(x W_KI)               [B, I, N, e], [B, N, e]
    w = x W_W                                          [B, I, N]
    s_ij = Σ_h w_ih ReLU(q^I_ih · k^I_j)               "sum"
    s_gij = q^I_ig · k^I_j                             "each": one choice for each head of keys
    o_i = softmax over the chosen keys j ≤ i of (q_i · k_j / √d), times v   [B, H, N, d]

K heads of keys and values serve H / K consecutive heads each. The budget is n tokens. With C = 1 a
query reads the n tokens of the largest s (DeepSeek-V3.2). Else it reads blocks of C tokens: its own
up to itself, and the n / C − 1 earlier ones of the largest s. A block's s is that of its mean key
("mean", as Qwen and, with learned weights, GLM have it), or its tokens' largest ("max", with "each"
as in MiniMax-M3).

Only the choice depends on the index, which therefore gets no gradient: W_QI, W_KI and W_W are
drawn and stay as they are, and no parameters. Models train them by a loss of their own.

`eager` stores all N weights of a query, `sdpa` lets torch's fused kernel read a mask, some queries
at a time: neither gains by the choice. `blocked` goes by block of keys (`attention.selection`).
The index stays quadratic. Always causal. For decoding, the state is k and v, and k^I of every
token, or for means the sum of every block.

Left out: factors of s that change no choice, rotations by positions, norms of q^I, number types of
a byte for the index, and keys that come from a latent.
Notation: our n is the authors' k, our e their d^I, our I their H^I.
Source: arXiv:2512.02556, equations (1) and (2).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, pad
from torch.utils.checkpoint import checkpoint

from attnbench import attention as at
from attnbench.mechanisms import grouped_query
from attnbench.mechanisms.grouped_query import kv_heads

EPSILON = 1e-6
QUERIES = 256  # of a part that reads one mask


@dataclass(frozen=True, kw_only=True)
class Config(grouped_query.Config):
    """`block`: C; `budget`: n; `score`: sum or each; `pool`: mean or max; `index_heads`: I, which
    is K for `each`; `index_width`: e; `kv_heads`: K, which divides H; None: H/4, or the next
    divisor below."""

    block: int = 128
    budget: int = 2048
    score: str = "sum"
    pool: str = "mean"
    index_heads: int = 4
    index_width: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_at_least(1, "block", "index_heads", "index_width")
        self.require_at_least(self.block, "budget")
        self.require_one_of("score", ("sum", "each"))
        self.require_one_of("pool", ("mean", "max"))

    @property
    def count(self) -> int:
        """Earlier blocks that a query reads."""
        return self.budget // self.block - (self.block > 1)

    @property
    def pooled(self) -> int:
        """Tokens of an index key."""
        return self.block if self.pool == "mean" else 1


class Indexed(at.CoreAttention):
    drawn: Tensor  # W_QI beside W_W, and W_KI

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        self.kv_heads = kv_heads(config, workload)
        self.choice: Tensor | None = None
        if workload.level is at.Level.CORE:
            return
        D, wide = workload.width, self.kv_heads * workload.head_width
        self.query = nn.Linear(D, D, bias=config.bias)
        self.key = nn.Linear(D, wide, bias=config.bias)
        self.value = nn.Linear(D, wide, bias=config.bias)
        self.output = nn.Linear(D, D, bias=config.bias)
        heads, e = index_heads(config, workload), config.index_width
        drawn = torch.randn(heads * (e + 1) + e, D) / D**0.5
        self.register_buffer("drawn", drawn)

    @staticmethod
    def core_inputs(config: Config, workload: at.Workload) -> tuple[tuple[int, ...], ...]:
        """Shapes of q, k and v, of q^I beside w, and of k^I."""
        w, e = workload, config.index_width
        kv = (w.batch, kv_heads(config, w), w.seq_len, w.head_width)
        index = (w.batch, index_heads(config, w), w.seq_len, e + 1)
        return (w.batch, w.heads, *kv[2:]), kv, kv, index, (w.batch, 1, w.seq_len, e)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.output(at.merge(self.attend(*self.projected(x), mask)))

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The tensors of `core_inputs`."""
        q, k, v = self.query(x), self.key(x), self.value(x)
        k, v = (t.unflatten(-1, (self.kv_heads, -1)).transpose(1, 2) for t in (k, v))
        e = self.config.index_width
        index = linear(x.detach(), self.drawn)
        keys = layer_norm(index[:, None, :, -e:], (e,), eps=EPSILON)
        queries = index[..., :-e].unflatten(-1, (-1, e + 1)).transpose(1, 2)
        return self.split(q), k, v, queries, keys

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, index: Tensor, keys: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Shapes of `core_inputs` and a mask [B, N] or None to [B, H, N, d]."""
        c, keys = self.config, at.widen(keys)
        if c.pool == "mean":
            keys, mask_of_keys = at.block_means(keys, mask, c.block), None
        else:
            mask_of_keys = mask
        self.choice = at.choose(
            lambda part, _: self.scores(part, keys, mask_of_keys),
            index,
            keys.shape[2],
            c.count,
            c.block,
        )
        return self.read(q, k, v, self.choice, mask)

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

    def read(self, q: Tensor, k: Tensor, v: Tensor, choice: Tensor, mask: Tensor | None) -> Tensor:
        """The outputs for a choice [B, K or 1, N, M], [B, H, N, d]."""
        N = q.shape[2]
        return at.read_allowed(q, k, v, at.allowed_tokens(choice, 0, N, self.config.block), mask)

    def draws(self, index: int) -> at.Draws:
        """`choice` [K or 1, N, M]: the blocks that each query reads, besides its own if C > 1."""
        return {} if self.choice is None else {"choice": self.choice[index]}

    def start(self, batch: int, capacity: int) -> at.State:
        c, like = self.config, self.output.weight
        k, v = like.new_empty(2, batch, self.kv_heads, capacity, self.width // self.heads)
        sums = like.new_zeros(batch, 1, -(-capacity // c.pooled), c.index_width)
        return at.ChosenState(k, v, at.widen(sums) if c.pooled > 1 else sums, 0)

    def prefill(self, x: Tensor, state: at.State) -> tuple[Tensor, at.State]:
        q, k, v, index, keys = self.projected(x)
        o = self.attend(q, k, v, index, keys, None)
        return self.output(at.merge(o)), at.ChosenState(*state).added(
            k, v, keys, self.config.pooled
        )

    def step(self, x: Tensor, state: at.State) -> tuple[Tensor, at.State]:
        c = self.config
        q, k, v, index, keys = self.projected(x)
        kept = at.ChosenState(*state).added(k, v, keys, c.pooled)
        last = kept.length - 1
        # keys that are not there yet are later than the query
        s = self.scores(index, at.widen(kept.sums) / c.pooled, None)
        choice = at.top_blocks(s, c.count, last, c.block)
        o = at.read_next(q, *kept.held(), at.allowed_tokens(choice, last, kept.length, c.block))
        return self.output(at.merge(o)), kept

    @staticmethod
    def state_elements(config: Config, workload: at.Workload) -> int:
        w, index = workload, -(-workload.seq_len // config.pooled) * config.index_width
        return w.batch * (2 * w.seq_len * kv_heads(config, w) * w.head_width + index)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """The projections; the index; then q kᵀ and A v over all keys."""
        return at.Flops(
            projections(config, w), scoring(config, w) + 4 * w.tokens * w.seq_len * w.width
        )

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 3 * w.heads * w.tokens * w.seq_len


def reference(module: Indexed, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    d, C, group = module.width // module.heads, module.config.block, module.heads // module.kv_heads
    q, k, v = (m(x) for m in (module.query, module.key, module.value))
    shares, rows = len(draws["choice"]), []
    for i in range(len(x)):
        heads = []
        for h in range(module.heads):
            chosen = draws["choice"][h * shares // module.heads, i].nonzero()[:, 0].tolist()
            blocks = [*chosen, i // C] if C > 1 else chosen
            keys = [j for j in range(i + 1) if j // C in blocks and (mask is None or mask[j])]
            own, shared = slice(h * d, (h + 1) * d), slice(h // group * d, (h // group + 1) * d)
            A = (k[keys, shared] @ q[i, own] / d**0.5).softmax(0)
            heads.append(A @ v[keys, shared] if keys else torch.zeros_like(q[i, own]))
        rows.append(torch.cat(heads))
    return module.output(torch.stack(rows))


class Sdpa(Indexed):
    def read(self, q: Tensor, k: Tensor, v: Tensor, choice: Tensor, mask: Tensor | None) -> Tensor:
        outputs = []
        for first in range(0, q.shape[2], QUERIES):
            part = slice(first, first + QUERIES)
            given = q[:, :, part], k, v, choice[:, :, part], mask, first
            outputs.append(checkpoint(self.part, *given, use_reentrant=False))
        return torch.cat(outputs, 2)

    def part(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        choice: Tensor,
        mask: Tensor | None,
        first: int,
    ) -> Tensor:
        """The outputs of queries from token `first` on."""
        keys = first + q.shape[2]
        allowed = at.allowed_tokens(choice, first, keys, self.config.block)
        if mask is not None:
            allowed = allowed & mask[:, None, None, :keys]
        allowed = allowed.repeat_interleave(q.shape[1] // allowed.shape[1], 1)
        return at.fused_attention(q, k[:, :, :keys], v[:, :, :keys], allowed, grouped=True)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """As eager, without the keys after each part of the queries."""
        N, B = w.seq_len, QUERIES
        keys = sum(min(B, N - first) * min(first + B, N) for first in range(0, N, B))
        core = scoring(config, w) + 4 * w.batch * keys * w.width
        return at.Flops(projections(config, w), core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """The choice of a byte each, and the masks of a part."""
        shares = kv_heads(config, w) if config.score == "each" else 1
        choice = shares * w.tokens * -(-w.seq_len // config.block) // 4
        return choice + 2 * w.batch * w.heads * QUERIES * w.seq_len + 2 * w.tokens * w.width


class Blocked(Indexed):
    def read(self, q: Tensor, k: Tensor, v: Tensor, choice: Tensor, mask: Tensor | None) -> Tensor:
        return at.read_chosen(q, k, v, choice, mask, self.config.block)

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if config.block == 1:
            return "single tokens are no blocks of keys; use indexed:sdpa"
        return None

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """The projections; the index; then q kᵀ and A v over the blocks that are read."""
        read = at.chosen_flops(w.seq_len, config.block, config.count, w.heads, w.head_width)
        return at.Flops(projections(config, w), scoring(config, w) + w.batch * read)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """The choice of a byte each, q, k, v and o in other orders."""
        shares = kv_heads(config, w) if config.score == "each" else 1
        choice = shares * w.tokens * -(-w.seq_len // config.block) // 4
        return choice + 8 * w.tokens * w.width


def index_heads(config: Config, w: at.Workload) -> int:
    """I."""
    return kv_heads(config, w) if config.score == "each" else config.index_heads


def projections(config: Config, w: at.Workload) -> int:
    """FLOPs of W_Q and W_O, of the narrower W_K and W_V, and of W_QI, W_W and W_KI."""
    e = config.index_width
    index = index_heads(config, w) * (e + 1) + e
    return 2 * w.tokens * w.width * (2 * w.width + 2 * kv_heads(config, w) * w.head_width + index)


def scoring(config: Config, w: at.Workload) -> int:
    """FLOPs of q^I k^Iᵀ."""
    keys = -(-w.seq_len // config.pooled)
    return 2 * w.tokens * keys * index_heads(config, w) * config.index_width


def parameters(config: Config, w: at.Workload) -> int:
    """W_Q and W_O, D × D, and W_K and W_V, D × K d (with biases)."""
    wide = kv_heads(config, w) * w.head_width
    return 2 * (w.width + wide) * (w.width + config.bias)


def default(config: Config, w: at.Workload) -> str:
    """A mask is cheaper where a query reads most keys, and the only way to read single tokens."""
    return "blocked" if config.block > 1 and w.seq_len > 2 * config.budget else "sdpa"


CARD = at.Card(
    forms={"eager": Indexed, "sdpa": Sdpa, "blocked": Blocked},
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
        Config(),
    ),
    default=default,
    needs=grouped_query.needs,
)
