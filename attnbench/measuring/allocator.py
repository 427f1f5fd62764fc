"""What a measuring process asks of its allocator, and this process's memory limit."""

from contextlib import suppress

from attnbench.devices import SYSTEM

AHEAD = 0.3  # share of what is mapped
MOST_AHEAD = 1 << 30  # bytes


def keep_pages() -> None:
    """Make the allocator keep freed pages, so that no iteration pays for page faults again.

    One arena, since those of autograd's threads are unmapped whenever they are empty. A heap that
    keeps everything grows to a multiple of what is allocated.
    """
    SYSTEM.keep_pages()


def return_pages() -> None:
    """Make the allocator return what is freed, so that the process has in memory what is in use.

    Otherwise it keeps pages between those that are in use, and large pages hold more than was
    asked for, which looks like growth. Each large block then takes a call of the system.
    """
    SYSTEM.return_pages()


def map_ahead() -> None:
    """Map pages that iterations after the first may need, as they split memory differently.

    Measured in a process's first cases of Fig. 2: the second iteration faulted in up to 37 % as
    many pages as the first, 4 % of its time; after this, 1 % at most in six cases. No share other
    than `AHEAD` was tried. If no memory is left, none are mapped.
    """
    with suppress(MemoryError):
        bytearray(min(MOST_AHEAD, int(AHEAD * private_bytes())))


def private_bytes() -> int:
    """Resident bytes that do not belong to files; 0 where the system does not say."""
    return SYSTEM.private_bytes()


def limit(further_bytes: int) -> None:
    """Limit memory, so that running out is an error to record and not a kill by the kernel."""
    SYSTEM.limit_memory(further_bytes)
