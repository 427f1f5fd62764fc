"""The states of the random generators that a mechanism may use: torch's, numpy's and Python's."""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Draws:
    """What the common generators draw next; `device` is the state of an accelerator's, if any.

    A generator that a mechanism made for itself, and what the system draws, are not among them.
    """

    host: Tensor
    device: Tensor | None
    numpy: Any
    python: Any


def draws(device: str) -> Draws:
    """The states as they are now."""
    of_device: Any = getattr(torch.get_device_module(device), "get_rng_state", None)
    return Draws(
        host=torch.get_rng_state(),
        device=of_device(device) if of_device else None,
        numpy=np.random.get_state(),
        python=random.getstate(),
    )


def redraw(states: Draws, device: str) -> None:
    """Restore the generators to those states."""
    torch.set_rng_state(states.host)
    if states.device is not None:
        torch.get_device_module(device).set_rng_state(states.device, device)
    np.random.set_state(states.numpy)
    random.setstate(states.python)
