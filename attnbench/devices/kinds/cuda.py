"""NVIDIA GPUs: device events for time, torch's allocator and NVML for memory and clocks."""

import ctypes
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from types import MappingProxyType
from typing import Any
from uuid import UUID

from attnbench.devices import nvml
from attnbench.devices.protocol import (
    Build,
    Device,
    Iterate,
    Meter,
    Stopwatch,
    Unavailable,
    ValuesAndNotes,
)
from attnbench.records import OTHERS, Case, Clock
from attnbench.records.notes import Note

# variables that change what is computed or how memory is managed, recorded where they are set
VARIABLES = (
    *("NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "CUDA_LAUNCH_BLOCKING"),
    *("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "CUDA_VISIBLE_DEVICES"),
    *("PYTORCH_NO_CUDA_MEMORY_CACHING", "CUDA_MODULE_LOADING", "CUBLASLT_WORKSPACE_SIZE"),
    *("TORCH_BLAS_PREFER_CUBLASLT", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
    "CUBLAS_EMULATE_SINGLE_PRECISION",
)

# of CUdevice_attribute
COMPUTE_MODE = 20
CAPABILITY_MAJOR = 75
CAPABILITY_MINOR = 76
COMPILES = 7, 0  # the least compute capability for which torch compiles kernels with Triton
# how many processes the driver's modes allow where those are too few: CUcomputemode_enum
ALLOWED = MappingProxyType({2: "no process", 3: "one process only"})


class Cuda(Device):
    """One GPU or MIG instance; `cuda` is the first of CUDA_VISIBLE_DEVICES."""

    preference = 1
    flushes_cache = True
    captures = True
    counts_energy = True
    context_bytes = 600 << 20  # those of current drivers and cards take 300 to 600 MiB
    start_s = 2.0  # for a context, cuBLAS and the first kernels

    def missing(self) -> str:
        if built_for("hip"):
            return "the installed torch is for AMD GPUs (ROCm), which attnbench cannot measure"
        if (count := device_count()) <= self.index:
            return f"this machine has {count} CUDA device{'s' * (count != 1)}"
        if not built_for("cuda"):
            return "the installed torch was built without CUDA"
        return self.exclusive()

    def exclusive(self) -> str:
        """Why several processes cannot use the device at once, as in races; empty if they can."""
        mode = self.attribute(COMPUTE_MODE)
        if mode not in ALLOWED or shared_by_mps():
            return ""
        return f"it allows {ALLOWED[mode]}; nvidia-smi -c DEFAULT lets several use it"

    def attribute(self, number: int) -> int:
        """What the driver says of the device; 0 without a driver, or where it does not know."""
        answer = ctypes.c_int()
        with suppress(OSError):
            if driver().cuDeviceGetAttribute(ctypes.byref(answer), number, self.index):
                return 0
        return answer.value

    def title(self) -> str:
        name = ctypes.create_string_buffer(256)
        driver().cuDeviceGetName(name, len(name), self.index)
        return name.value.decode()

    def memory_bytes(self) -> int | None:
        with suppress(Unavailable):
            return int(
                nvml.ask(lambda lib, gpu: lib.nvmlDeviceGetMemoryInfo(gpu).free, self.uuid())
            )
        return None

    def cannot_compile(self) -> str:
        if find_spec("triton") is None:
            return "torch.compile needs triton, which is not installed"
        has = self.attribute(CAPABILITY_MAJOR), self.attribute(CAPABILITY_MINOR)
        if has[0] and has < COMPILES:  # else unknown, as where a sweep is planned without a GPU
            needed, own = ("{}.{}".format(*version) for version in (COMPILES, has))
            return f"torch.compile needs compute capability {needed}; this GPU has {own}"
        if not any(map(which, filter(None, (os.environ.get("CC"), "gcc", "clang")))):
            return "torch.compile needs a C compiler: install gcc, or name another one in CC"
        return self.missing_headers_reason()  # Triton compiles a module for each kernel's launches

    def select(self) -> None:
        import torch

        torch.cuda.set_device(self.index)
        # float32 must mean float32 in convolutions too, for which torch allows TF32 by default
        torch.backends.cudnn.allow_tf32 = False

    def stopwatch(self, cold: bool = False, clock: Clock = Clock.WALL) -> Stopwatch:
        from attnbench.devices.cuda_timing import CudaStopwatch

        return CudaStopwatch(cold, self.torch_name)

    def synchronise(self) -> None:
        import torch

        torch.cuda.synchronize(self.index)

    def meter(self) -> Meter:
        return nvml.GpuMeter(self.uuid())

    def captured(self, subject: Any) -> Iterate:
        from attnbench.devices.cuda_graphs import captured

        return captured(subject)

    def notes(self, watch: Stopwatch) -> Mapping[str, str]:
        return {Note.LAUNCHES: getattr(watch, "visible_launches", "")}

    def profile_memory(self, build: Build, case: Case) -> ValuesAndNotes:
        from attnbench.devices.cuda_memory import profile_memory

        return profile_memory(lambda: build(case), self.uuid())

    def joules(self) -> float:
        return nvml.joules(self.uuid())

    def release(self) -> None:
        import torch

        from attnbench.devices.cuda_memory import free_workspaces

        free_workspaces()
        torch.cuda.empty_cache()

    def facts(self) -> Mapping[str, Any]:
        import torch

        notes = {name: os.environ[name] for name in VARIABLES if name in os.environ}
        notes["cuDNN TF32"] = "on" if torch.backends.cudnn.allow_tf32 else "off"
        notes["float32 matmul precision"] = torch.get_float32_matmul_precision()
        properties = torch.cuda.get_device_properties(self.index)
        notes["multiprocessors"] = str(properties.multi_processor_count)
        notes["L2 cache"] = f"{properties.L2_cache_size >> 10} KiB"
        notes |= nvml.machine(self.uuid())
        if others := nvml.load_of_others(self.uuid()):
            notes[OTHERS] = others
        if self.uuid().startswith(nvml.PART):
            notes["MIG"] = "instance; clock, power and energy are the whole GPU's"
        return {
            "device": self.title(),
            "device_uuid": self.uuid(),
            "device_memory_bytes": torch.cuda.mem_get_info(self.index)[0],
            "cuda": torch.version.cuda or "",
            "driver": nvml.driver(),
            "tf32": torch.backends.cuda.matmul.allow_tf32,
            "notes": notes,
        }

    def uuid(self) -> str:
        """NVML's name of the device; NVML's numbers ignore CUDA_VISIBLE_DEVICES."""
        number = ctypes.create_string_buffer(16)
        # the second version gives the UUID of a MIG instance
        driver().cuDeviceGetUuid_v2(number, self.index)
        text = str(UUID(bytes=number.raw))
        is_part = nvml.answer(nvml.PART + text, lambda *_: True, default=False)
        return nvml.PART + text if is_part else f"GPU-{text}"


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


def shared_by_mps() -> bool:
    """Whether NVIDIA's Multi-Process Service runs: one process for the device, whose clients are
    many."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control").exists()


def built_for(platform: str) -> bool:
    """Whether the installed torch is for `cuda` or `hip`, as its `version.py` says.

    Does not import torch.
    """
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    version = Path(spec.origin).with_name("version.py").read_text()
    # else `= None`
    return re.search(rf"^{platform}\b.*= *['\"]", version, re.MULTILINE) is not None
