"""How torch, and the libraries below it, say that memory ran out, or that the GPU failed."""

import sys
from contextlib import suppress

from attnbench.errors import first_line

# the last is how torch's allocator fails on a MIG instance, or in a container, when it asks NVML
# what is free
REFUSED = (
    "can't allocate memory",
    "out of memory",
    "not enough memory",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "cufft_alloc_failed",
    "cusolver_status_alloc_failed",
    "nvml_success == r internal assert failed",
)
# a handle gets no memory, or no call works any more
UNCLEAR = ("cublas_status_not_initialized",)


class DeviceFailed(RuntimeError):
    """A kernel broke the GPU for all further calls of this process; the text is the GPU's."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation was refused; on a CPU torch reports that as a RuntimeError."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True  # the second is torch's, which need not be loaded
    if not isinstance(error, RuntimeError):
        return False
    text = str(error)
    return says(text, REFUSED) or (says(text, UNCLEAR) and not device_failure())


def says(text: str, listed: tuple[str, ...]) -> bool:
    """Whether a message has one of these words."""
    return any(words in text.lower() for words in listed)


def device_failure() -> str:
    """What this process's GPU answers to every call since a kernel broke it; empty if it works.

    Waits for the GPU, and must not be called while a graph is captured.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return ""
    with suppress(RuntimeError):  # an error that does not last is reported once
        torch.cuda.synchronize()
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        return first_line(error)
    return ""


def raise_device_failure() -> None:
    """Raise `DeviceFailed` if the GPU answers no call of this process any more."""
    if text := device_failure():
        raise DeviceFailed(text)
