"""The least time of a mechanism on this machine, by which `speed` divides what it took."""

from dataclasses import dataclass

from attnbench.measuring.environment import copy_bytes, matmul_flops
from attnbench.records import ITEM_BYTES, Clock

MEASURED = 5  # times, of which the fastest counts, since others use the machine too


@dataclass(frozen=True)
class Rates:
    """What a device reaches: FLOP/s of a large float32 product, and bytes/s of a large copy."""

    flops: float
    copied: float

    def __str__(self):
        return f"{self.flops / 1e9:,.0f} GFLOP/s and {self.copied / 1e9:,.1f} GB/s"


def rates(device):
    """The rates of a device; runs operations."""
    return Rates(
        max(matmul_flops(device, "float32", Clock.CPU) for _ in range(MEASURED)),
        max(copy_bytes(device, Clock.CPU) for _ in range(MEASURED)),
    )


def floor_s(card, config, w, reached):
    """The least seconds of one iteration: of its products or of moving data, whichever is longer.

    The products are those of the cheapest form; parameters, input and output are moved once. A
    backward pass takes twice as much of each as the forward pass.
    """
    counts = [form.flops(config, w) for form in card.forms.values() if not form.package]
    products = min(flops.projections + flops.core for flops in counts)
    numbers = card.parameters(config, w) + 2 * w.tokens * w.width
    once = max(products / reached.flops, ITEM_BYTES[w.dtype] * numbers / reached.copied)
    return (3 if w.trains else 1) * once
