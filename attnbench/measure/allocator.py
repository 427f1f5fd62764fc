"""What this process asks of the C library's allocator (glibc), and its ceiling of memory."""

import ctypes
from contextlib import suppress

from attnbench.measure.memory import status_bytes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -3, -4, -8
RESIDENT_MMAP_BYTES = 65_536  # with larger ones, VmHWM is off by −25 to +100 %


def keep_pages() -> None:
    """Have the allocator keep freed pages, so that no iteration pays for page faults again.

    There is one arena: those of autograd's threads are unmapped whenever they are empty.
    """
    mallopt(M_ARENA_MAX, 1)
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, -1)


def return_pages() -> None:
    """Have it give them back, so that the resident peak is that of what is alive."""
    mallopt(M_MMAP_THRESHOLD, RESIDENT_MMAP_BYTES)


def trim() -> None:
    """Give back, once, what is kept and unused."""
    if (call := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        call(0)


def private_bytes() -> int:
    """Resident bytes that are no file's; 0 where the system does not say."""
    with suppress(OSError):
        return status_bytes("RssAnon")
    return 0


def mallopt(parameter: int, value: int) -> None:
    """Set a parameter of glibc's allocator; other allocators have no such call."""
    if (call := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        call(parameter, value)


def limit(further_bytes: int) -> None:
    """A ceiling that turns a kill by the kernel into an error that can be recorded."""
    try:
        import resource

        in_use = status_bytes("VmSize")
    except (ImportError, OSError):  # another system, or one that hides /proc
        return
    limits = resource.getrlimit(resource.RLIMIT_AS)
    set_before = [each for each in limits if each != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([in_use + further_bytes, *set_before]), limits[1]))
