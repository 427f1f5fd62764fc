"""Mechanisms that end badly on a GPU, from a length on."""

import os
import signal
from contextlib import suppress

import torch
from torch import nn

LENGTH = 512  # tokens at which it begins
SPIN_S = 60.0  # bounded, should nobody end the process
SHARE = 4  # a process to be killed holds this part of the device's memory


def part_of_memory(device):
    """A tensor as large as that part."""
    _, total = torch.cuda.mem_get_info()
    return torch.empty(total // SHARE, dtype=torch.int8, device=device)


class Usual(nn.Module):
    """Adds the mean of all tokens."""

    def __init__(self, width, heads):
        super().__init__()
        self.value = nn.Linear(width, width)

    def forward(self, x):
        if x.shape[1] >= LENGTH:
            self.end(x)
        return x + self.value(x).mean(1, keepdim=True)

    def end(self, x):
        """What happens to long sequences: nothing."""


class Fills(Usual):
    """Takes all memory there is before it asks for more."""

    def end(self, x):
        _, size = torch.cuda.mem_get_info()
        held = []
        while size > 1 << 20:
            size //= 2
            with suppress(torch.OutOfMemoryError):
                while True:
                    held.append(torch.empty(size, dtype=torch.int8, device=x.device))
        raise torch.OutOfMemoryError(f"after {len(held)} tensors")


class Dies(Usual):
    """Is killed while the device computes."""

    def end(self, x):
        self.held = part_of_memory(x.device)
        torch.cuda._sleep(10_000_000)
        os.kill(os.getpid(), signal.SIGKILL)


class Spins(Usual):
    """Waits for a kernel that takes longer than anyone waits."""

    def end(self, x):
        self.held = part_of_memory(x.device)
        device = torch.cuda.current_device()
        rate = getattr(torch.cuda.get_device_properties(device), "clock_rate", 1_500_000)
        torch.cuda._sleep(int(SPIN_S * rate * 1000))
        torch.cuda.synchronize()
