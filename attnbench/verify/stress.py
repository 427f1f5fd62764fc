"""Inputs that break kernels, as changes of usual ones.

A change takes the tensors of a core by name (`attention.core`) and gives all of them, or None where
it changes none.
"""

from collections.abc import Callable
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

STRONG = -27.6  # the log of a decay of 1e-12
MIXED = (-1e-6, -1e-4, -0.1, STRONG, -316.0)  # logs of decays, the last as in Qwen3.5
ZEROED = ("q", "k", "v", "x", "latent")
BFLOAT16 = "in bfloat16"

Tensors = dict[str, Tensor]
Change = Callable[[Tensors], Tensors | None]


class Stress(NamedTuple):
    """Changed inputs, and what they are called."""

    name: str
    change: Change


def random(like: Tensor) -> Tensor:
    """Numbers between 0 and 1, the same for the same shape."""
    generator = torch.Generator().manual_seed(5)
    return torch.rand(like.shape, generator=generator, dtype=torch.float64).to(like.device)


def alike(share: float) -> Change:
    """Keys, or tokens of a layer, of which this share of the squares is one common vector's."""

    def change(usual: Tensors) -> Tensors | None:
        name = "x" if "x" in usual else "k"
        if name not in usual:
            return None
        x = usual[name]
        length = x.norm(dim=-1, keepdim=True)
        common = normalize(x.narrow(-2, 0, 1), dim=-1) * length
        mixed = sqrt(share) * common + sqrt(1 - share) * x
        return {**usual, name: length * normalize(mixed, dim=-1)}

    return change


def decays(logs: Callable[[Tensor], Tensor]) -> Change:
    """Logs of decays g, where each token has its own, or f, of which decays are the sigmoid."""

    def change(usual: Tensors) -> Tensors | None:
        if "f" in usual:
            g = logs(random(usual["f"])).clamp(min=STRONG)  # only recurrences have stronger ones
            return {**usual, "f": g - (-g.expm1()).log()}
        if "g" not in usual or usual["g"].shape[2] == 1:
            return None
        return {**usual, "g": logs(random(usual["g"]))}

    return change


def steps(sizes: Callable[[Tensor], Tensor]) -> Change:
    """Step sizes beta."""

    def change(usual: Tensors) -> Tensors | None:
        return {**usual, "beta": sizes(random(usual["beta"]))} if "beta" in usual else None

    return change


def near_one(u: Tensor) -> Tensor:
    """Logs of decays from 0.99 to 0.9999."""
    return -(10.0 ** (-2 - 2 * u))


def mixed(u: Tensor) -> Tensor:
    """Logs of decays of very different sizes."""
    return u.new_tensor(MIXED)[(u * len(MIXED)).long()]


def hardest(usual: Tensors) -> Tensors | None:
    """All keys alike, kept for long, and replaced in full."""
    kept = decays(near_one)(usual)
    found = kept and alike(0.999)(kept)
    return found and (steps(torch.ones_like)(found) or found)


def zeros(usual: Tensors) -> Tensors:
    """Half of the tokens are zeros, and all of the last head or, of a layer, the last token."""
    changed = {**usual}
    for name in usual.keys() & {*ZEROED}:
        kept = random(usual[name][..., :1]) < 0.5
        kept[:, -1] = False
        changed[name] = usual[name] * kept
    return changed


def large(usual: Tensors) -> Tensors | None:
    """Queries, or tokens of a layer, 30 times as large; a recurrence is linear in them."""
    name = "x" if "x" in usual else "q"
    return None if "beta" in usual or "g" in usual else {**usual, name: 30 * usual[name]}


def usual_ones(usual: Tensors) -> Tensors:
    """No change."""
    return usual


def long(usual: Tensors) -> Tensors:
    """Decays near 1 where there are any."""
    return decays(near_one)(usual) or usual


USUAL, LONG = Stress("as usual", usual_ones), Stress("long", long)
STRESSES = (
    Stress("keys 90 % alike", alike(0.9)),
    Stress("keys 99.9 % alike", alike(0.999)),
    Stress("decays near 1", decays(near_one)),
    Stress("decays near 1, keys alike", hardest),
    Stress("decays of 1e-12", decays(lambda u: torch.full_like(u, STRONG))),
    Stress("decays from 1 to e^-316", decays(mixed)),
    Stress("beta 0", steps(torch.zeros_like)),
    Stress("beta 1", steps(torch.ones_like)),
    Stress("beta 0 or 1", steps(torch.round)),
    Stress("zeros", zeros),
    Stress("large queries", large),
)
