"""What a mechanism is: modules with one signature.

    Attention.forward   x [B, N, D], mask [B, N] or None   to [B, N, D]
    QKVAttention.attend q, k, v [B, H, N, d], mask         to [B, H, N, d]
    Attention.step      x [B, n, D] after a state          to [B, n, D], state

True in a mask marks a real token; None means that all tokens are real and nothing is masked.
The sequences of a batch never mix, padding changes no real token, a query without a valid key gets
0 from the core and never NaN, and every N ≥ 1 works.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import pad

from attnbench.attention.kernels.caches import empty
from attnbench.attention.kernels.primitives import widen
from attnbench.records import Level, Workload

NO_SEPARATE_CORE = "folding merges the projections into the core, so there is no separate core"

Draws = dict[str, Tensor]  # what a forward pass drew at random or assigned, by name

State = tuple[Any, ...]  # what a mechanism keeps of past tokens: tensors, and counts of tokens


@dataclass(frozen=True, kw_only=True)
class BaseConfig:
    """Options of every mechanism. `bias`: whether the projections have biases."""

    bias: bool = False

    def require_at_least(self, least: int, *names: str) -> None:
        """Raises `ValueError` if one of these options is a number below `least`."""
        for name in names:
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}; it must be at least {least}")

    def require_one_of(self, name: str, known: Collection[str]) -> None:
        """Raises `ValueError` unless the option has a known value."""
        value = getattr(self, name)
        if value not in known:
            raise ValueError(f"unknown {name} {value!r}; known: {', '.join(known)}")

    def sized(self, workload: Workload) -> Workload:
        """The workload as forms and cards take it: with the heads of the mechanism."""
        return workload


@dataclass(frozen=True)
class Flops:
    """Forward FLOPs of a workload: matrix products only, a multiply-add counts as 2."""

    projections: int  # of all tokens
    core: int  # everything else


class Unusable(Exception):
    """What a form needs is installed but does not work on this machine."""

    outcome = "unsupported"


class Attention(nn.Module):
    """One form of a mechanism: [B, N, D] and an optional mask [B, N] to [B, N, D].

    `package` names the package that computes the form, for pip; empty: this one. `deviation`: how
    the form's function deviates from the equations; empty if it does not. `flops_estimated`: FLOPs
    and parameters are estimates, and counted when it runs.
    """

    package = ""
    deviation = ""
    flops_estimated = False

    compiles = False  # whether torch.compile makes code for each shape
    tunes = False  # whether its kernels try many configurations when they are first used
    one_token_reason = "it is written for one"  # why a step takes one token; empty: it takes more

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__()
        self.config = config
        self.width = workload.width
        self.heads = workload.heads
        self.head_width = workload.head_width
        self.inner_width = workload.inner_width
        self.seq_len = workload.seq_len
        self.causal = workload.causal
        self.step_tokens = workload.step

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        raise NotImplementedError

    def __call__(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """`forward`, and for an empty batch nothing of what it gives for a sequence of zeros.

        So that all parameters have a gradient there too, which is zero.
        """
        if len(x):
            return super().__call__(x, mask)
        one = pad(x, (0, 0, 0, 0, 0, 1))
        real = None if mask is None else mask.new_ones(1, x.shape[1])
        return super().__call__(one, real)[:0]

    def auxiliary_loss(self) -> Tensor | None:
        """The mechanism's auxiliary loss of the last forward pass, or None."""
        return None

    @property
    def stacked(self) -> "tuple[Attention, ...]":
        """The attentions of which it consists, one after the other: itself, or those of a stack."""
        return (self,)

    def draws(self, index: int) -> Draws:
        """Random draws and assignments of the last forward pass for sequence `index`."""
        return {}

    def split(self, x: Tensor) -> Tensor:
        """[B, N, D] to [B, H, N, d], a view."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def start(self, batch: int, capacity: int) -> State:
        """The state of sequences without tokens, which takes up to `capacity` tokens each.

        Raises `NotImplementedError` if the form cannot continue a sequence token by token.
        """
        raise NotImplementedError

    def prefill(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The causal outputs of the first tokens, [B, N, D] to [B, N, D], and the state after."""
        raise NotImplementedError

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The outputs of the next tokens, [B, n, D] to [B, n, D], and the state after them.

        n is at most the workload's `step`, and 1 where there is a `one_token_reason`. May write
        into tensors of `state`, but the same step can be repeated from it.
        """
        return self.prefill(x, state)

    @staticmethod
    def state_elements(config: Any, workload: Workload) -> int:
        """Exact elements of the state of all B sequences after N tokens each."""
        raise NotImplementedError

    @staticmethod
    def needs(config: Any, workload: Workload) -> str | None:
        """Why this form cannot run the workload on this machine, or None. Runs no operation."""
        return None

    @staticmethod
    def flops(config: Any, workload: Workload) -> Flops:
        """Exact forward FLOPs of this form; each override names its products."""
        raise NotImplementedError

    @classmethod
    def step_flops(cls, config: Any, workload: Workload) -> Flops | None:
        """Exact FLOPs of the step whose last token is N, or None: they are counted."""
        return None

    @staticmethod
    def elements(config: Any, workload: Workload) -> int:
        """Predicted peak of elements that the core materialises in addition to q, k, v and o."""
        return 5 * workload.heads * workload.tokens * workload.seq_len  # all weights, and scores


class Projections(nn.Module):
    """The four D × D projections of one attention, as attributes."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, width, bias=bias)
        self.value = nn.Linear(width, width, bias=bias)
        self.output = nn.Linear(width, width, bias=bias)


class CoreAttention(Attention):
    """An attention with a core that can be measured without its projections, at level `core`.

    At that level the module has no projections, and `attend` is called directly.
    """

    @staticmethod
    def core_inputs(config: Any, workload: Workload) -> tuple[tuple[int, ...], ...]:
        """Shapes of the tensors that `attend` takes: q, k and v, [B, H, N, d] each."""
        w = workload
        return ((w.batch, w.heads, w.seq_len, w.head_width),) * 3

    def attend(self, *args: Any, **kwargs: Any) -> Tensor:
        """The core: its inputs and a mask [B, N] or None to [B, H, N, d]."""
        raise NotImplementedError


class QKVAttention(CoreAttention):
    """Projections to q, k and v around a core; most mechanisms only implement `attend`.

    The projections are D × D unless the first three `core_inputs` say otherwise.
    """

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        shapes = self.core_inputs(config, workload)[:3]
        self.head_counts = tuple(heads for _, heads, _, _ in shapes)  # of q, k and v
        if workload.level is not Level.CORE:
            D = workload.width
            query, key, value = (heads * width for _, heads, _, width in shapes)
            self.query = nn.Linear(D, query, bias=config.bias)
            self.key = nn.Linear(D, key, bias=config.bias)
            self.value = nn.Linear(D, value, bias=config.bias)
            self.output = nn.Linear(shapes[0][1] * shapes[2][3], D, bias=config.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.finished(self.attend(*self.projected(x), mask), x)

    def projected(self, x: Tensor) -> tuple[Tensor, ...]:
        """The core's inputs of x [B, N, D]: q, k and v by head, views of the projections."""
        linears = zip((self.query, self.key, self.value), self.head_counts, strict=True)
        return tuple(m(x).unflatten(-1, (heads, -1)).transpose(1, 2) for m, heads in linears)

    def finished(self, o: Tensor, x: Tensor) -> Tensor:
        """The output [B, N, D], from the core's [B, H, N, d] and x."""
        return self.output(merge(o))


class CachedAttention(QKVAttention):
    """A core whose state is a `Cache` of keys and values (`attention.kernels.caches`)."""

    one_token_reason = ""

    @staticmethod
    def slots(config: Any, tokens: int) -> tuple[int, int]:
        """How many first tokens the cache fixes, and its slots, for a context of `tokens`."""
        return 0, tokens

    @classmethod
    def slots_in_steps(cls, config: Any, tokens: int, step: int) -> tuple[int, int]:
        """The same where a step's first token reads what its later ones would overwrite."""
        fixed, slots = cls.slots(config, tokens)
        return fixed, min(slots + step - 1, tokens)

    def start(self, batch: int, capacity: int) -> State:
        fixed, slots = self.slots_in_steps(self.config, capacity, self.step_tokens)
        heads = self.head_counts[1]
        return empty(self.key.weight, batch, heads, slots, self.head_width, fixed)

    @classmethod
    def state_elements(cls, config: Any, workload: Workload) -> int:
        _, slots = cls.slots_in_steps(config, workload.seq_len, workload.step)
        batch, heads, _, d = cls.core_inputs(config, workload)[1]
        return 2 * batch * heads * slots * d

    def prefill(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        q, k, v = self.projected(x)
        return self.finished(self.attend(q, k, v, None), x), state.added(k, v)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        q, k, v = self.projected(x)
        state = state.added(k, v)
        mask = None  # all tokens in slots are read
        if self.step_tokens > 1:
            query, key = state.numbers(x.shape[1])
            mask = (key <= query) & self.near(query, key)
        return self.finished(self.attend_next(q, state, mask), x), state

    def near(self, query: Tensor, key: Tensor) -> Tensor:
        """Whether a token reads an earlier one, by their numbers."""
        return key >= 0

    def attend_next(self, q: Tensor, state: Any, mask: Tensor | None) -> Tensor:
        """The core of the last n tokens, q [B, H, n, d] to [B, H, n, d], with a mask [n, slots]."""
        raise NotImplementedError


class Recurrent(CoreAttention):
    """A mechanism with a recurrent state S; a subclass implements `scan` and `extend`."""

    output: nn.Linear
    rule: Callable[..., tuple[Tensor, Tensor]]  # the recurrence over tokens, which `scan` calls
    by_row = False  # whether every row of S decays at a rate of its own
    one_token_reason = ""

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        self.shape = self.state_shape(config, workload)

    @staticmethod
    def state_shape(config: Any, workload: Workload) -> tuple[int, ...]:
        """The shape of S of one sequence."""
        raise NotImplementedError

    @classmethod
    def state_elements(cls, config: Any, workload: Workload) -> int:
        return workload.batch * prod(cls.state_shape(config, workload))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.extend(x, mask, self.start(len(x), 0))[0]

    def extend(self, x: Tensor, mask: Tensor | None, state: State) -> tuple[Tensor, State]:
        """The outputs of tokens after a state, and the state after them."""
        raise NotImplementedError

    def attend(self, *inputs: Any) -> Tensor:
        """Tensors of `core_inputs` and a mask [B, N] or None to the output of the core."""
        return self.scan(*inputs, self.zero_state(len(inputs[0]), inputs[0]))[0]

    def scan(self, *inputs: Any) -> tuple[Tensor, Tensor]:
        """The core: its inputs, a mask and S to its output, and S after the tokens."""
        raise NotImplementedError

    def zero_state(self, batch: int, like: Tensor) -> Tensor:
        """S before the first token, on the device of `like` and at least as precise."""
        return widen(like.new_zeros(batch, *self.shape))

    def start(self, batch: int, capacity: int) -> State:
        return (self.zero_state(batch, self.output.weight),)

    def prefill(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self.extend(x, None, state)

    @classmethod
    def chunk(cls, config: Any, d: int) -> int | None:
        """Tokens of a chunk, for d rows of S; None: token by token."""
        return None

    @classmethod
    def step_flops(cls, config: Any, w: Workload) -> Flops:
        """The FLOPs of the tokens of a step alone."""
        return cls.flops(config, replace(w, seq_len=w.step))


class InChunks(Recurrent):
    """The first base of a form by chunks, as long as the config says or is fastest on a CPU."""

    @classmethod
    def chunk(cls, config: Any, d: int) -> int:
        fastest = (32 if d >= 64 else 16) * (1 if cls.by_row else 2)
        return int(config.chunk or fastest)


def each_alone(workload: Workload) -> Workload:
    """The tokens of a step as sequences of one token each."""
    return replace(workload, batch=workload.batch * workload.step, seq_len=1)


def merge(x: Tensor) -> Tensor:
    """[B, H, N, d] to [B, N, D]."""
    return x.transpose(1, 2).flatten(2)


def projection_parameters(config: Any, workload: Workload) -> int:
    """Parameters of the four D × D projections: 4 D² (+ 4 D with biases)."""
    return 4 * workload.width * (workload.width + config.bias)


def projection_flops(workload: Workload, count: int = 4) -> int:
    """FLOPs of `count` D × D projections of all tokens: 2 B N D² each."""
    return 2 * count * workload.tokens * workload.width**2
