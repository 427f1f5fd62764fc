"""How torch, and the libraries below it, say that memory ran out."""

# the last is how torch's allocator fails on a MIG instance, or in a container, when it asks NVML
# what is free
REFUSED = (
    "can't allocate memory",
    "out of memory",
    "not enough memory",
    "cublas_status_alloc_failed",
    "cublas_status_not_initialized",
    "cudnn_status_alloc_failed",
    "cufft_alloc_failed",
    "cusolver_status_alloc_failed",
    "nvml_success == r internal assert failed",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation was refused; on a CPU torch reports that as a RuntimeError."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True  # the second is torch's, which need not be loaded
    return isinstance(error, RuntimeError) and is_refusal(str(error))


def is_refusal(text: str) -> bool:
    """Whether the message of a RuntimeError says that an allocation was refused."""
    return any(words in text.lower() for words in REFUSED)
