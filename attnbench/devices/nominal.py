"""Peaks that NVIDIA states for its products: FLOP/s without sparsity, and bytes/s of memory.

From the data sheets of A100 (2021), H100 (2024; tensor cores as in the architecture's white paper),
H200 (2024), L4 and L40S (2023), which state tensor cores with sparsity from Hopper and Ada on:
twice what is here. Products in float64 run on tensor cores where there are any for them; those in
float32 do not, unless TF32 is allowed.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

TERA = 1e12


class Nominal(NamedTuple):
    """TFLOP/s of number types and of TF32, and TB/s; None where the sheet does not say."""

    float64: float | None
    float32: float
    tf32: float
    bfloat16: float  # and float16
    copy: float


# by the name that the driver gives
PRODUCTS: Mapping[str, Nominal] = MappingProxyType(
    {
        "NVIDIA A100-SXM4-40GB": Nominal(19.5, 19.5, 156, 312, 1.555),
        "NVIDIA A100-PCIE-40GB": Nominal(19.5, 19.5, 156, 312, 1.555),
        "NVIDIA A100-SXM4-80GB": Nominal(19.5, 19.5, 156, 312, 2.039),
        "NVIDIA A100 80GB PCIe": Nominal(19.5, 19.5, 156, 312, 1.935),
        "NVIDIA H100 80GB HBM3": Nominal(67, 67, 494.7, 989.4, 3.35),
        "NVIDIA H100 PCIe": Nominal(51, 51, 378, 756, 2.0),
        "NVIDIA H100 NVL": Nominal(60, 60, 417.5, 835.5, 3.9),
        "NVIDIA H200": Nominal(67, 67, 494.7, 989.4, 4.8),
        "NVIDIA L4": Nominal(None, 30.3, 60, 121, 0.3),
        "NVIDIA L40S": Nominal(None, 91.6, 183, 362, 0.864),
    }
)


def rates(title: str) -> dict[str, float]:
    """FLOP/s by number type, and `tf32`; bytes/s as `copy`; empty if it is not in the table."""
    if (product := PRODUCTS.get(title)) is None:
        return {}
    stated = {**product._asdict(), "float16": product.bfloat16}
    return {name: TERA * rate for name, rate in stated.items() if rate is not None}
