"""The CPU: CPU time of a thread or wall time of several, and memory from the system."""

import os
from collections.abc import Mapping
from shutil import which
from typing import Any

from attnbench.devices.host import memory_bytes
from attnbench.devices.protocol import Build, Device, Meter, Stopwatch, ValuesAndNotes
from attnbench.devices.timing import HostStopwatch
from attnbench.records import Case, Clock

FAULTING_S = 3.0  # longest warm-up that goes on while pages fault


class Cpu(Device):
    """One core, or as many as there are threads; the clock of one is CPU time.

    Whatever else runs, a process gets its core back as it was, only later. A team of threads waits
    for its slowest member, so its CPU time says little.
    """

    tokens = 1 << 13
    budget_s = 300.0
    threshold = 0.02
    clock = "process CPU time"
    threads = 1
    shared = 0.6
    gpus = 0
    matmul_size = 1024
    copy_elements = 1 << 24
    peak_calls = 1
    bytes_per_s = 1e10

    def usual_tokens(self, width: int) -> int:
        """As many as cost a layer's products no more than at a width of 1,024."""
        return max(1, self.tokens // max(1, width // 1024) ** 2)

    @property
    def torch_name(self) -> str:
        return "cpu"

    def missing(self) -> str:
        return "a CPU has no number" if ":" in self.name else ""

    def sampling(self, quick: bool, bounded: bool) -> Mapping[str, Any]:
        return {
            "sample_s": 0.25 if quick else 0.5 if bounded else 3.0,
            "warmup_s": 0.1 if quick else 0.2 if bounded else 3.0,
            "faulting_s": FAULTING_S,
            "memory_limit_bytes": memory_bytes(),
        }

    def host_clock(self, threads: int) -> Clock:
        return Clock.CPU if threads == 1 else Clock.WALL

    def flops_per_s(self, threads: int) -> float:
        return 64e9 * threads

    def memory_bytes(self) -> int | None:
        return memory_bytes()

    def cannot_compile(self) -> str:
        compiler = os.environ.get("CXX", "g++")
        if which(compiler):
            return self.missing_headers_reason()
        return f"torch.compile needs a C++ compiler: install {compiler}, or name another one in CXX"

    def stopwatch(self, cold: bool = False, clock: Clock = Clock.WALL) -> Stopwatch:
        return HostStopwatch(counts=clock)

    def meter(self) -> Meter:
        from attnbench.devices.disturbances import CoreMeter

        return CoreMeter()

    def profile_memory(self, build: Build, case: Case) -> ValuesAndNotes:
        from attnbench.devices.memory import on_cpu

        return on_cpu(build, case)
