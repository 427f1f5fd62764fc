"""This machine with its versions and measured peak rates."""

import platform
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch

from attnbench.devices import SYSTEM, find
from attnbench.devices.cgroups import cores, quota_cores, stops
from attnbench.devices.disturbances import share, waited_s
from attnbench.devices.host import host, load, memory_bytes, processor
from attnbench.devices.protocol import Device
from attnbench.devices.timing import repeated, sample
from attnbench.records import LOST, Clock, Environment
from attnbench.version import __version__

PEAK_S = 0.15  # per peak rate: precise enough, and short enough before every sweep


def environment(device: str, threads: int, dtypes: Sequence[str]) -> Environment:
    """This machine with measured peak rates: of matrix products in each number type, and of copies.

    A rate is missing where memory is too small for it. Runs operations, so only workers may call
    it.
    """
    found_device = find(device)
    found_device.select()
    facts = found_device.facts()  # before the peaks, which take memory
    before = load()
    begun = (time.process_time(), waited_s())
    stopped = stops()
    clock = found_device.host_clock(threads)
    products = dict[str, float]()
    for dtype in dtypes:
        with suppress(torch.OutOfMemoryError):
            products[dtype] = matmul_flops(found_device, dtype, clock)
    copied = None
    with suppress(torch.OutOfMemoryError):
        copied = copy_bytes(found_device, clock)
    found_device.release()
    if SYSTEM.lost:
        facts = {**facts, "notes": {LOST: "; ".join(SYSTEM.lost), **facts.get("notes", {})}}
    return Environment(
        attnbench=__version__,
        python=platform.python_version(),
        torch=str(torch.__version__),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        host=host(),
        processor=processor(),
        cores=cores(),
        threads=threads,
        memory_bytes=memory_bytes(),
        matmul_flops=products.get(dtypes[0]),
        copy_bytes=copied,
        peaks=products,
        load=before,
        share=share(time.process_time() - begun[0], waited_s() - begun[1]),
        quota_cores=quota_cores() if (stops() - stopped).stopped else None,
        **facts,
    )


def matmul_flops(device: Device, dtype: str, clock: Clock) -> float:
    """FLOP/s of a large product in this type."""
    size = device.matmul_size
    a, b = torch.randn(2, size, size, device=device.torch_name).to(getattr(torch, dtype))
    return 2 * size**3 / fastest_call_s(lambda: torch.mm(a, b), device, clock)


def copy_bytes(device: Device, clock: Clock) -> float:
    """Bytes/s of a large copy, read and written."""
    source = torch.randn(device.copy_elements, device=device.torch_name)
    target = torch.empty_like(source)
    return 2 * source.nbytes / fastest_call_s(lambda: target.copy_(source), device, clock)


def fastest_call_s(work: Callable[[], object], device: Device, clock: Clock) -> float:
    """Seconds of one call, the mean of the fastest run of calls within `PEAK_S`."""
    watch = device.stopwatch(clock=clock)
    iterate = repeated(work, device.peak_calls)
    took = list[float]()
    end = time.perf_counter() + PEAK_S
    while len(took) < 2 or time.perf_counter() < end:
        took.append(sample(iterate, lambda: None, watch, 1, hide=False).seconds)
    return min(took) / device.peak_calls
