"""Takes from Python what Linux has beyond POSIX: on `PYTHONPATH`, in every process of a command.

What `/proc` and `/sys` tell is told to `psutil` alone, which other systems answer in other ways.
"""

import ctypes  # noqa: F401  # before its calls are watched
import errno
import os
import posix
import resource
import sys
import time

HIDDEN = ("/proc", "/sys", "/dev/shm")
CALLS = {"prctl", "mallopt", "mallinfo", "mallinfo2", "malloc_trim", "sched_setaffinity"}
BEYOND = (
    *("sched_getaffinity", "sched_setaffinity", "sched_getscheduler", "sched_setscheduler"),
    *("sched_getparam", "sched_setparam", "sched_rr_get_interval", "pidfd_open", "memfd_create"),
    *("eventfd", "copy_file_range", "splice", "posix_fadvise", "posix_fallocate", "setns"),
    *("unshare", "getrandom", "waitid", "fdatasync", "pipe2", "listxattr", "getxattr"),
    *("sendfile", "setresuid", "getresuid", "O_TMPFILE", "O_PATH", "O_DIRECT"),
)


def asked_by_psutil():
    """Whether a function of psutil is being run."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == "psutil":
            return True
        frame = frame.f_back
    return False


def refuse(path):
    """Raises `FileNotFoundError` for a file that only Linux has."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return
    name = os.path.normpath(os.fsdecode(path))
    if name.startswith(HIDDEN) and not asked_by_psutil():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


def watch(event, arguments):
    """Refuse what is asked of the system, if it is Linux alone that answers."""
    if event in ("open", "os.listdir", "os.scandir", "os.chdir"):
        refuse(arguments[0])
    elif event == "ctypes.dlsym" and arguments[1] in CALLS:
        raise AttributeError(f"{arguments[1]}: symbol not found")


def refusing(call):
    """A call of `os` for files that does not find those of Linux."""

    def called(path, *arguments, **named):
        refuse(path)
        return call(path, *arguments, **named)

    return called


def clock_gettime(clock):
    """The time of a clock that POSIX knows."""
    if clock < 0:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return of_any_clock(clock)


of_any_clock = time.clock_gettime
time.clock_gettime = clock_gettime
for module in (os, posix):
    for name in BEYOND:
        if hasattr(module, name):
            delattr(module, name)
    for name in ("stat", "lstat", "readlink", "access"):
        setattr(module, name, refusing(getattr(module, name)))
del resource.prlimit
sys.addaudithook(watch)
