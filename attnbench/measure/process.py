"""Process-wide settings, which no mechanism may change, and errors that mean out of memory."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch

# how torch and CUDA's libraries report a refused allocation; the last is how torch's allocator
# fails on a MIG instance, or in a container, when it asks NVML what is free
OUT_OF_MEMORY = (
    *("can't allocate memory", "out of memory", "not enough memory"),
    *("cublas_status_alloc_failed", "cublas_status_not_initialized", "cudnn_status_alloc_failed"),
    *("cufft_alloc_failed", "cusolver_status_alloc_failed"),
    "nvml_success == r internal assert failed",
)
OFF = "off"  # autocast, as usual


def torch_state() -> dict[str, Any]:
    """Settings of the whole process that a mechanism must not change."""
    return {
        "default dtype": torch.get_default_dtype(),
        "number of threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "matmul precision": matmul_precision(),
        "autocast": autocast(),
    }


def matmul_precision() -> str:
    """How precise float32 products are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.9 warns that the setting has a new name
        try:
            return torch.get_float32_matmul_precision()
        except RuntimeError:  # newer settings, which the old one cannot express
            return "set for each backend"


def autocast() -> str:
    """The kinds of device with autocast on, each with its type (`cpu bfloat16`), or `OFF`."""
    on = (kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind))
    types = (f"{kind} {torch.get_autocast_dtype(kind)}".replace("torch.", "") for kind in on)
    return ", ".join(types) or OFF


def changes(before: Mapping[str, Any]) -> str:
    """What has changed in `torch_state` since: `number of threads 2 to 7; …`, or nothing."""
    now = torch_state().items()
    return "; ".join(f"{name} {before[name]} to {new}" for name, new in now if before[name] != new)


def is_out_of_memory(error: BaseException) -> bool:
    """torch reports a refused allocation as a RuntimeError on a CPU."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in OUT_OF_MEMORY)
