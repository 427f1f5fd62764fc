"""NVIDIA GPUs: device events for time, torch's allocator and NVML for memory and clocks."""

import ctypes
import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

from attnbench.device import Build, Device, Stopwatch, Weighed
from attnbench.measure import nvml
from attnbench.records import Case


class Cuda(Device):
    """One GPU; `cuda` is the first of CUDA_VISIBLE_DEVICES."""

    preference = 1
    flushes_cache = True

    def missing(self) -> str:
        if (count := device_count()) <= self.index:
            return f"this machine has {count} CUDA devices"
        return "" if built_with_cuda() else "the installed torch was built without CUDA"

    def title(self) -> str:
        name = ctypes.create_string_buffer(256)
        driver().cuDeviceGetName(name, len(name), self.index)
        return name.value.decode()

    def cannot_compile(self) -> str:
        if find_spec("triton") is None:
            return "torch.compile needs triton, which is not installed"
        if not any(map(which, filter(None, (os.environ.get("CC"), "gcc", "clang")))):
            return "torch.compile needs a C compiler: install gcc, or name another one in CC"
        return ""

    def select(self) -> None:
        import torch

        torch.cuda.set_device(self.index)

    def stopwatch(self, cold: bool = False) -> Stopwatch:
        from attnbench.measure.cuda import CudaStopwatch

        return CudaStopwatch(cold)

    def synchronise(self) -> None:
        import torch

        torch.cuda.synchronize(self.index)

    def settled(self) -> bool:
        return nvml.near_usual_clock(self.uuid())

    def readings(self) -> Mapping[str, float]:
        return nvml.readings(self.uuid())

    def notes(self, watch: Stopwatch) -> Mapping[str, str]:
        launches = getattr(watch, "visible_launches", "")
        throttle = nvml.throttle(self.uuid())
        return {"allocator": "caching", "throttle": throttle, "launches": launches}

    def weigh(self, build: Build, case: Case) -> Weighed:
        from attnbench.measure.cuda import weigh

        return weigh(build(case), self.uuid())

    def release(self) -> None:
        import torch

        torch.cuda.empty_cache()

    def facts(self) -> Mapping[str, Any]:
        import torch

        return {
            "device": self.title(),
            "device_memory_bytes": torch.cuda.mem_get_info(self.index)[0],
            "cuda": torch.version.cuda or "",
            "driver": nvml.driver(),
            "tf32": torch.backends.cuda.matmul.allow_tf32,
        }

    def uuid(self) -> str:
        """NVML's name of the device; NVML's numbers ignore CUDA_VISIBLE_DEVICES."""
        import torch

        uuid = str(torch.cuda.get_device_properties(self.index).uuid)
        return uuid if "-" in uuid[:4] else f"GPU-{uuid}"


def device_count() -> int:
    """How many CUDA devices this process sees."""
    count = ctypes.c_int()
    try:
        failed = driver().cuDeviceGetCount(ctypes.byref(count))
    except OSError:
        return 0
    return 0 if failed else count.value


def driver() -> Any:
    """The driver's library, initialised; takes milliseconds. Raises `OSError`."""
    library = ctypes.CDLL("libcuda.so.1")
    if code := library.cuInit(0):
        raise OSError(f"the CUDA driver does not start: error {code}")
    return library


def built_with_cuda() -> bool:
    """Whether the installed torch can use CUDA, as its `version.py` says; does not import torch."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    version = Path(spec.origin).with_name("version.py").read_text()
    return re.search(r"^cuda\b.*= *['\"]", version, re.MULTILINE) is not None  # else `= None`
