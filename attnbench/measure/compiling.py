"""What torch.compile does in a measuring process: loading it, and counting what it compiles."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.utils import counters

from attnbench.devices.protocol import Device


def load(device: Device) -> None:
    """Forget what was compiled for other cases, and load the compiler with all its parts.

    Otherwise the first case of a process would pay for loading, and torch would stop compiling a
    mechanism after a few shapes.
    """
    torch.compiler.reset()
    torch.compile(lambda x: x + 1, dynamic=False)(torch.zeros(2, device=device.torch_name))


def first_s(iterate: Callable[..., Any], clear: Callable[[], None], device: Device) -> float:
    """Seconds of a first iteration, which compiles everything it runs."""
    begun = time.perf_counter()
    iterate(lambda phase: None)
    clear()
    device.synchronise()
    return time.perf_counter() - begun


def graphs() -> int:
    """How many graphs torch.compile has compiled in this process so far."""
    return counters["stats"]["unique_graphs"]
