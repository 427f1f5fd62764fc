"""By which names a user's function takes the tensors of a core, and its mask.

A function may use the core's own names (`attention.core`), others that are usual for the same
tensor (`ALIASES`), or the symbols of its field (`DIALECTS`), whose tensors are computed from the
core's:

    state space   x, dt, A, B, C     v = dt x,  g = A dt,  k = B,  q = C         A [H] below 0
    the same      X, A, B, C         v = X,  g = A,  k = B,  q = C
    RWKV-7        r, w, k, v, a, b   q = r,  g = w,  r = −a e^(−w)
    the same      q, k, v, alpha, beta, gk    a and b of RWKV-7, and its logs of decays
    forgetting    q, k, v, g         f = logit(e^g) − b

A mask has the meaning that is usual for its name, or another usual one (`MASKS`).
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

Tensors = Mapping[str, Tensor]

ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "q": ("query", "queries", "Q"),
    "k": ("key", "keys", "K"),
    "v": ("value", "values", "V"),
    "g": ("gk", "log_g", "log_decay", "log_decays", "decay", "decays"),
    "beta": ("betas", "b"),
    "latent": ("kv", "c_kv", "compressed_kv"),
})  # fmt: skip
# what narrow number types would round too much: logs of decays, and what they are made of
PRECISE = frozenset({"g", "w", "gk", "dt", "A"})
LEAST_STEP = 1e-6  # of dt, as x = v / dt


def of_steps(core: Tensors) -> dict[str, Tensor]:
    """x, dt, A, B and C of the tensors of a state space's core."""
    g = core["g"]
    v = core["v"]
    H = v.shape[1]
    A = -torch.arange(1, H + 1, dtype=v.dtype, device=v.device) / H
    dt = (g / A[:, None]).expand(v.shape[:3]).clamp(min=LEAST_STEP)
    return {"x": v / dt[..., None], "dt": dt, "A": A, "B": core["k"], "C": core["q"]}


def from_steps(taken: Tensors) -> dict[str, Tensor]:
    """The core's tensors of x, dt, A, B and C."""
    dt = taken["dt"]
    g = taken["A"][:, None] * dt
    v = taken["x"] * dt[..., None]
    return {"g": g, "q": taken["C"], "k": taken["B"], "v": v}


def of_receptance(core: Tensors) -> dict[str, Tensor]:
    """r, w, k, v, a and b of RWKV-7, whose a reads the state before it has faded."""
    a = -core["r"] * core["g"].exp()
    return {"r": core["q"], "w": core["g"], "k": core["k"], "v": core["v"], "a": a, "b": core["b"]}


def from_receptance(taken: Tensors) -> dict[str, Tensor]:
    """The core's tensors of r, w, k, v, a and b."""
    r = -taken["a"] * (-taken["w"]).exp()
    same = {"q": taken["r"], "k": taken["k"], "v": taken["v"], "b": taken["b"]}
    return {"g": taken["w"], **same, "r": r}


def of_logits(core: Tensors) -> dict[str, Tensor]:
    """The core's tensors with logs of decays g in place of their logits f, to which b is added."""
    g = logsigmoid(core["f"] + core["learned b"][:, None])
    return {**{name: core[name] for name in "qkv"}, "g": g}


def from_logits(taken: Tensors) -> dict[str, Tensor]:
    """The core's tensors with f = logit(e^g) − b."""
    g = taken["g"].clamp(max=-1e-12)
    f = g - (-torch.expm1(g)).log() - taken["learned b"].to(g.dtype)[:, None]
    return {**{name: taken[name] for name in "qkv"}, "f": f}


def renamed(**others: str) -> Callable[[Tensors], dict[str, Tensor]]:
    """A function from tensors to the same ones under `others`, each by its new name."""

    def rename(tensors: Tensors) -> dict[str, Tensor]:
        return {new: tensors[old] for new, old in others.items()}

    return rename


@dataclass(frozen=True)
class Dialect:
    """Tensors of a function, and how they and those of a core follow from one another.

    `core`: the names of the core's tensors; `taken`: those of the function's; `needs`: the ones
    by which a function is known to mean it.
    """

    core: frozenset[str]
    taken: tuple[str, ...]
    needs: frozenset[str]
    of_core: Callable[[Tensors], dict[str, Tensor]]
    to_core: Callable[[Tensors], dict[str, Tensor]]


ALPHA: Mapping[str, str] = MappingProxyType(
    {"q": "r", "k": "k", "v": "v", "alpha": "a", "beta": "b", "gk": "w"}
)
DIALECTS = (
    Dialect(
        core=frozenset({"g", "q", "k", "v"}),
        taken=("x", "dt", "A", "B", "C"),
        needs=frozenset({"x", "dt", "A", "B", "C"}),
        of_core=of_steps,
        to_core=from_steps,
    ),
    Dialect(
        core=frozenset({"g", "q", "k", "v"}),
        taken=("X", "A", "B", "C"),
        needs=frozenset({"X", "A", "B", "C"}),
        of_core=renamed(X="v", A="g", B="k", C="q"),
        to_core=renamed(v="X", g="A", k="B", q="C"),
    ),
    Dialect(
        core=frozenset({"g", "q", "k", "v", "b", "r"}),
        taken=("r", "w", "k", "v", "a", "b"),
        needs=frozenset({"r", "w", "k", "v", "a", "b"}),
        of_core=of_receptance,
        to_core=from_receptance,
    ),
    Dialect(
        core=frozenset({"g", "q", "k", "v", "b", "r"}),
        taken=tuple(ALPHA),
        needs=frozenset({"alpha", "beta", "gk"}),
        of_core=lambda core: renamed(**ALPHA)(of_receptance(core)),
        to_core=lambda taken: from_receptance({old: taken[new] for new, old in ALPHA.items()}),
    ),
    Dialect(
        core=frozenset({"q", "k", "v", "f"}),
        taken=("q", "k", "v", "g"),
        needs=frozenset({"g"}),
        of_core=of_logits,
        to_core=from_logits,
    ),
)


@dataclass(frozen=True)
class Binding:
    """How a function takes tensors: `parameters` are its own names for those of its dialect.

    `mask`: the name of its mask, or empty.
    """

    dialect: Dialect
    parameters: Mapping[str, str]
    mask: str

    @property
    def untaken(self) -> tuple[str, ...]:
        """The tensors that it does not take."""
        return tuple(name for name in self.dialect.taken if name not in self.parameters)


def bound(accepted: Mapping[str, bool], takes_any: bool, names: tuple[str, ...]) -> Binding:
    """How a function with these parameters takes the tensors of a core with these names.

    accepted: its parameters that may be given by name, and whether they have no default
    takes_any: whether it takes any other names too (`**kwargs`)
    names: of the core's tensors, in order
    """
    core = frozenset(names)
    same = renamed(**{name: name for name in names})
    own = Dialect(core, names, frozenset(), same, same)
    spoken = (d for d in DIALECTS if d.core == core and d.needs <= accepted.keys())
    dialect = next(spoken, own)
    parameters = dict[str, str]()
    for name in dialect.taken:
        candidates = (name, *ALIASES.get(name, ()))
        # a usual name may be that of another tensor of the core
        known = (each for each in candidates if each == name or each not in dialect.taken)
        found = next((each for each in known if each in accepted), None)
        if found or takes_any:
            parameters[name] = found or name
    mask = next((name for name in MASKS if name in accepted), "")
    return Binding(dialect, parameters, mask)


def accepted(function: Callable[..., Any]) -> tuple[dict[str, bool], bool]:
    """The parameters that a function takes by name, with whether they have no default.

    Also whether it takes any others, or has no signature that could be read.
    """
    try:
        found = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return {}, True
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    taken = {p.name: p.default is p.empty for p in found if p.kind in by_name}
    return taken, any(p.kind is p.VAR_KEYWORD for p in found)


def positional(function: Callable[..., Any], known: Collection[str]) -> tuple[str, ...]:
    """Parameters without a default that can only be given by position, or that nothing gives."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    needed = (p for p in found if p.default is p.empty)
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return tuple(
        p.name
        for p in needed
        if p.kind not in kinds and (p.kind is p.POSITIONAL_ONLY or p.name not in known)
    )


def real(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, N], True for real tokens."""
    return mask


def padding(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, N], True for padding."""
    return ~mask


def keys(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, 1, 1, N] of [B, N], or [B, 1, N, N] of [B, N, N], True for keys that take part."""
    return mask[:, None, None] if mask.dim() == 2 else mask[:, None]


def scores(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Of the same shape as `keys`, what is added to scores: 0, or the lowest number."""
    seen = keys(mask, dtype)
    lowest = torch.finfo(dtype).min
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, lowest)


CONVENTIONS: Mapping[str, Callable[[Tensor, torch.dtype], Tensor]] = MappingProxyType(
    {"real": real, "padding": padding, "keys": keys, "scores": scores}
)
OF_SCORES = frozenset({"keys", "scores"})  # which may be [B, 1, N, N]
# the parameters that are masks, and what each may mean, the most usual first
MASKS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "mask": ("real", "keys", "scores"),
    "key_padding_mask": ("padding", "real"),
    "padding_mask": ("padding", "real"),
    "attn_mask": ("keys", "scores"),
    "attention_mask": ("keys", "scores", "real"),
    "key_mask": ("real", "keys"),
})  # fmt: skip
