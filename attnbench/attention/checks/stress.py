"""Inputs that break kernels, as changes of usual ones.

A stress changes tensors of a core by their names (`attention.core`), where the core has them. The
tokens x of a whole layer are its queries and its keys.
"""

from collections.abc import Callable, Mapping
from math import sqrt
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from attnbench.records import USUAL_INPUTS

STRONG = -27.6  # the log of a decay of 1e-12
MIXED = (-1e-6, -1e-4, -0.1, STRONG, -316.0)  # logs of decays, the last as in Qwen3.5
BFLOAT16 = "in bfloat16"
MASKED = "masked"
VIEWS = "not contiguous"

Change = Callable[[Tensor], Tensor]


class Stress(NamedTuple):
    """What it is called, and how it changes tensors."""

    name: str
    changes: Mapping[str, Change] = MappingProxyType({})

    def changed(self, usual: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors; those that do not change are the same objects."""
        names = self.changes.keys() & usual.keys()
        return {**usual, **{name: self.changes[name](usual[name]) for name in names}}


def random(like: Tensor) -> Tensor:
    """Numbers between 0 and 1, the same for the same shape."""
    generator = torch.Generator().manual_seed(5)
    return torch.rand(like.shape, generator=generator, dtype=torch.float64).to(like.device)


def alike(share: float) -> dict[str, Change]:
    """Keys of which this share of the squares is one common vector's."""

    def change(k: Tensor) -> Tensor:
        length = k.norm(dim=-1, keepdim=True)
        common = normalize(k.narrow(-2, 0, 1), dim=-1) * length
        return length * normalize(sqrt(share) * common + sqrt(1 - share) * k, dim=-1)

    return {"k": change, "x": change}


def decays(logs: Change) -> dict[str, Change]:
    """Logs g of decays where tokens have their own, or f, whose sigmoid the decays are."""
    return {
        "g": lambda g: logs(random(g)) if g.shape[2] > 1 else g,
        "f": lambda f: logs(random(f)).exp().logit(1e-12),  # only recurrences have stronger ones
    }


def near_one(u: Tensor) -> Tensor:
    """Logs of decays from 0.99 to 0.9999."""
    return -(10.0 ** (-2 - 2 * u))


def mixed(u: Tensor) -> Tensor:
    """Logs of decays of very different sizes."""
    return u.new_tensor(MIXED)[(u * len(MIXED)).long()]


def zeros(x: Tensor) -> Tensor:
    """Half of the tokens are zeros, and all of the last head or, of a layer, the last sequence."""
    kept = random(x[..., :1]) < 0.5
    kept[:, -1] = False
    return x * kept


USUAL = Stress(USUAL_INPUTS)
LONG = Stress("long", decays(near_one))
STRESSES = (
    Stress("keys 90 % alike", alike(0.9)),
    Stress("decays near 1", decays(near_one)),
    Stress(
        "keys 99.9 % alike and kept",
        {**alike(0.999), **decays(near_one), "beta": torch.ones_like},
    ),
    Stress("decays of 1e-12", decays(lambda u: torch.full_like(u, STRONG))),
    Stress("decays from 1 to e^-316", decays(mixed)),
    Stress("beta 0", {"beta": torch.zeros_like}),
    Stress("beta 1", {"beta": torch.ones_like}),
    Stress("beta 0 or 1", {"beta": lambda beta: random(beta).round()}),
    Stress("zeros", dict.fromkeys(("q", "k", "v", "x", "latent"), zeros)),
    Stress("large queries", dict.fromkeys("qx", lambda q: 30 * q)),
)
NAMED = MappingProxyType({stress.name: stress for stress in (USUAL, LONG, *STRESSES)})
