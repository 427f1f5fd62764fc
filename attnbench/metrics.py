"""Every number introduces itself: key, label, unit, which way is better, description."""

from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """What a number counts; `units` alone turns it into text."""

    SECONDS = "s"
    BYTES = "bytes"
    FLOPS = "FLOPs"
    FLOPS_PER_S = "FLOP/s"
    COUNT = "count"
    RATIO = "ratio"
    EXPONENT = "exponent"


class Better(StrEnum):
    """Which way a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


@dataclass(frozen=True)
class Metric:
    """One row of the table."""

    key: str
    label: str
    unit: Unit
    better: Better
    description: str
    # two counts nearer than this, relatively, are the same; None for what is not counted
    tolerance: float | None = None


EXACT = 0.0
# the workspaces of a kernel count, which another processor may size otherwise
PEAKS = 0.01

TABLE: tuple[Metric, ...] = (
    Metric("wall_s", "time", Unit.SECONDS, Better.LOWER, "wall time of one iteration"),
    Metric("cpu_s", "CPU time", Unit.SECONDS, Better.LOWER, "process time, all threads"),
    Metric("device_s", "device time", Unit.SECONDS, Better.LOWER, "between device events"),
    Metric("time_s", "time", Unit.SECONDS, Better.LOWER, "device time on a GPU, else wall time"),
    Metric("forward_s", "forward", Unit.SECONDS, Better.LOWER, "forward and loss"),
    Metric("backward_s", "backward", Unit.SECONDS, Better.LOWER, "backward"),
    Metric("step_s", "step", Unit.SECONDS, Better.LOWER, "optimiser step"),
    Metric(
        "forward_backward_s",
        "forward + backward",
        Unit.SECONDS,
        Better.LOWER,
        "forward, loss and backward, without the optimiser step",
    ),
    Metric("token_s", "time per token", Unit.SECONDS, Better.LOWER, "time over B · N"),
    Metric(
        "allocated_peak_bytes",
        "allocated peak",
        Unit.BYTES,
        Better.LOWER,
        "most bytes alive at once, from the allocator's own events; parameters and inputs are in",
        PEAKS,
    ),
    Metric(
        "allocated_delta_bytes",
        "allocated above inputs",
        Unit.BYTES,
        Better.LOWER,
        "allocated peak less what was alive before the iteration",
        PEAKS,
    ),
    Metric(
        "reserved_peak_bytes",
        "reserved peak",
        Unit.BYTES,
        Better.LOWER,
        "most bytes that torch's caching allocator held on the GPU",
    ),
    Metric(
        "resident_peak_bytes",
        "resident peak",
        Unit.BYTES,
        Better.LOWER,
        "most bytes of the process in physical memory, code and libraries included",
    ),
    Metric(
        "resident_delta_bytes",
        "resident above start",
        Unit.BYTES,
        Better.LOWER,
        "resident peak less what was resident before the iteration",
    ),
    Metric(
        "device_process_bytes",
        "process peak (NVML)",
        Unit.BYTES,
        Better.LOWER,
        "most bytes that the driver charged to the process",
    ),
    Metric(
        "saved_bytes",
        "saved for backward",
        Unit.BYTES,
        Better.LOWER,
        "tensors kept by autograd",
        PEAKS,
    ),
    Metric(
        "kept_bytes",
        "kept by each iteration",
        Unit.BYTES,
        Better.LOWER,
        "alive after an iteration and not before it, gradients and outputs gone",
        PEAKS,
    ),
    Metric(
        "moved_bytes",
        "bytes moved",
        Unit.BYTES,
        Better.LOWER,
        "operands and results, summed",
        PEAKS,
    ),
    Metric("operators", "operators", Unit.COUNT, Better.LOWER, "operators of one iteration", EXACT),
    Metric("parameters", "parameters", Unit.COUNT, Better.LOWER, "trainable parameters", EXACT),
    Metric("flops", "FLOPs", Unit.FLOPS, Better.LOWER, "forward, matrix products, exact", EXACT),
    Metric(
        "core_flops",
        "core FLOPs",
        Unit.FLOPS,
        Better.LOWER,
        "FLOPs without the linear maps",
        EXACT,
    ),
    Metric(
        "projection_flops",
        "projection FLOPs",
        Unit.FLOPS,
        Better.LOWER,
        "FLOPs of the linear maps",
        EXACT,
    ),
    Metric("setup_s", "set-up", Unit.SECONDS, Better.LOWER, "building the module and its inputs"),
    Metric("warmup_s", "warm-up", Unit.SECONDS, Better.LOWER, "iterations before the samples"),
    Metric("warmup_iterations", "warm-up iterations", Unit.COUNT, Better.NEITHER, "their number"),
    Metric(
        "error",
        "error",
        Unit.RATIO,
        Better.LOWER,
        "output against the float64 reference on a slice, relative",
    ),
    Metric("energy_j", "energy", Unit.COUNT, Better.LOWER, "joules of the GPU while timed"),
    Metric("temperature_c", "temperature", Unit.COUNT, Better.NEITHER, "of the GPU, in °C"),
    Metric("power_w", "power", Unit.COUNT, Better.NEITHER, "of the GPU, in watts"),
    Metric("load_before", "load before", Unit.COUNT, Better.NEITHER, "one-minute load average"),
    Metric("load_after", "load after", Unit.COUNT, Better.NEITHER, "one-minute load average"),
)


def metric(key: str) -> Metric:
    """The metric of that key. Raises `KeyError` if there is none."""
    for row in TABLE:
        if row.key == key:
            return row
    raise KeyError(key)
