"""This machine with its versions and measured peak rates."""

import platform
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.devices.cgroups import cores
from attnbench.devices.finding import find
from attnbench.devices.host import busy_cores, host, load, memory_bytes, processor
from attnbench.devices.protocol import Device
from attnbench.records import Clock, Environment
from attnbench.version import __version__

if TYPE_CHECKING:
    import torch

PEAK_S = 0.15  # per peak rate: precise enough, and short enough before every sweep


def environment(device: str, threads: int, dtype: str) -> Environment:
    """This machine with measured peak rates. Runs operations, so only workers may call it."""
    import torch

    chosen = find(device)
    chosen.select()
    facts = chosen.facts()  # before the peaks, which take memory
    before, others = load(), busy_cores()
    clock = chosen.host_clock(threads)
    matmul, copy = peaks(chosen, getattr(torch, dtype), seconds_of(clock))
    chosen.release()
    return Environment(
        attnbench=__version__,
        python=platform.python_version(),
        torch=torch.__version__,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        host=host(),
        processor=processor(),
        cores=cores(),
        threads=threads,
        memory_bytes=memory_bytes(),
        matmul_flops=matmul,
        copy_bytes=copy,
        load=before,
        busy_cores=others,
        **facts,
    )


def seconds_of(clock: Clock) -> Callable[[], float]:
    """What gives the seconds of a clock of the host."""
    return time.process_time if clock is Clock.CPU else time.perf_counter


def peaks(
    device: Device, dtype: "torch.dtype", clock: Callable[[], float] = time.perf_counter
) -> tuple[float | None, float | None]:
    """FLOP/s of a large matrix product in this type, and bytes/s of a large copy.

    None where the device has too little memory.
    """
    import torch

    def product() -> float:
        size = device.matmul_size
        a, b = torch.randn(2, size, size, device=device.torch_name).to(dtype)
        return 2 * size**3 / best(lambda: torch.mm(a, b), device, clock)

    def copy() -> float:
        source = torch.randn(device.copy_elements, device=device.torch_name)
        target = torch.empty_like(source)
        moved = 2 * source.numel() * source.itemsize
        return moved / best(lambda: target.copy_(source), device, clock)

    rates: list[float | None] = []
    for rate in (product, copy):
        try:
            rates.append(rate())
        except torch.OutOfMemoryError:
            rates.append(None)
    return rates[0], rates[1]


def best(
    work: Callable[[], object], device: Device, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of the fastest call within `PEAK_S`."""
    work()
    device.synchronise()
    fastest, end = float("inf"), time.perf_counter() + PEAK_S
    while time.perf_counter() < end:
        begun = clock()
        work()
        device.synchronise()
        fastest = min(fastest, clock() - begun)
    return fastest
