"""Settings of the C library's allocator (glibc), and this process's memory limit."""

import ctypes
import resource
from contextlib import suppress

from attnbench.devices.host import proc_bytes
from attnbench.measuring.server import prctl

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
M_MMAP_MAX = -4
M_ARENA_MAX = -8
LARGE = 1 << 16  # bytes of blocks that are returned to the system one by one
AHEAD = 0.3  # share of what is mapped
MOST_AHEAD = 1 << 30  # bytes
PR_SET_THP_DISABLE = 41


def keep_pages() -> None:
    """Make the allocator keep freed pages, so that no iteration pays for page faults again.

    One arena, since those of autograd's threads are unmapped whenever they are empty. A heap that
    keeps everything grows to a multiple of what is allocated.
    """
    prctl(PR_SET_THP_DISABLE, 1)  # page faults map 4 KiB each, as they are counted
    mallopt(M_ARENA_MAX, 1)
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, -1)


def return_pages() -> None:
    """Make the allocator return what is freed, so that the process has in memory what is in use.

    Otherwise it keeps pages between those that are in use, and large pages hold more than was
    asked for, which looks like growth. Each large block then takes a call of the system.
    """
    prctl(PR_SET_THP_DISABLE, 1)
    mallopt(M_MMAP_THRESHOLD, LARGE)
    mallopt(M_TRIM_THRESHOLD, LARGE)
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


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
    return proc_bytes("self/status", "RssAnon")


def mallopt(parameter: int, value: int) -> None:
    """Set a parameter of glibc's allocator; does nothing with other allocators."""
    if (call := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        call(parameter, value)


def limit(further_bytes: int) -> None:
    """Limit memory, so that running out is an error to record and not a kill by the kernel."""
    if not (in_use := proc_bytes("self/status", "VmSize")):  # /proc is hidden
        return
    limits = resource.getrlimit(resource.RLIMIT_AS)
    present = [limit for limit in limits if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([in_use + further_bytes, *present]), limits[1]))
