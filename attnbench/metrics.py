"""What each number is: label, unit, tolerance, how rounds join, which way is better, meaning.

One table. Whoever compares, joins or prints a metric reads its row here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Unit(StrEnum):
    """What a number counts; `units` alone turns it into text."""

    SECONDS = "s"
    BYTES = "bytes"
    FLOPS = "FLOPs"
    JOULES = "J"
    WATTS = "W"
    CELSIUS = "°C"
    COUNT = "count"
    RATIO = "ratio"
    EXPONENT = "exponent"


class Better(StrEnum):
    """Which way a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


class Join(StrEnum):
    """How the values of several rounds become the one of their case."""

    GEOMETRIC_MEAN = "geometric mean"  # of times: rounds differ by factors
    MEDIAN = "median"
    LARGEST = "largest"  # of peaks: what the case may need
    EXACT = "exact"  # every round gives the same


@dataclass(frozen=True)
class Metric:
    """One row of the table.

    Two counted values that differ by at most `tolerance`, relative to the first, are the same;
    None for what is timed or only recorded.
    """

    key: str
    label: str
    unit: Unit
    description: str
    join: Join
    better: Better = Better.LOWER
    tolerance: float | None = None


def _time(key: str, label: str, description: str) -> Metric:
    return Metric(key, label, Unit.SECONDS, description, Join.GEOMETRIC_MEAN)


def _bytes(key: str, label: str, description: str, tolerance: float | None = None) -> Metric:
    return Metric(key, label, Unit.BYTES, description, Join.LARGEST, tolerance=tolerance)


def _recorded(key: str, label: str, unit: Unit, description: str) -> Metric:
    return Metric(key, label, unit, description, Join.MEDIAN, Better.NEITHER)


# a count of the program's own work: any difference is a change of the program
EXACT = 0.0
# kernels allocate workspaces whose size depends on the processor
PEAKS = 0.01

TABLE: Mapping[str, Metric] = MappingProxyType(
    {
        metric.key: metric
        for metric in (
            _time("time_s", "time", "one iteration: device time on a GPU, otherwise wall time"),
            _time("wall_s", "wall time", "one iteration by the clock on the wall"),
            _time("cpu_s", "CPU time", "one iteration, process time of all threads"),
            _time("device_s", "device time", "one iteration between two events of the GPU"),
            _time("forward_s", "forward", "forward pass and loss"),
            _time("backward_s", "backward", "backward pass"),
            _time("step_s", "step", "optimiser step"),
            _time("forward_backward_s", "forward + backward", "without the optimiser step"),
            _time("token_s", "time per token", "time over B · N"),
            _bytes(
                "allocated_peak_bytes",
                "allocated peak",
                "most bytes allocated at once, parameters and inputs included",
                PEAKS,
            ),
            _bytes(
                "allocated_delta_bytes",
                "allocated above inputs",
                "allocated peak less what was allocated before the iteration",
            ),
            _bytes("reserved_peak_bytes", "reserved peak", "most bytes torch reserved on the GPU"),
            _bytes(
                "resident_peak_bytes",
                "resident peak",
                "most physical memory of the process, code and libraries included",
            ),
            _bytes(
                "resident_delta_bytes",
                "resident above start",
                "resident peak less what was resident before the iteration",
            ),
            _bytes("device_process_bytes", "process peak (NVML)", "most bytes by the GPU's driver"),
            _bytes("saved_bytes", "saved for backward", "tensors that autograd keeps", PEAKS),
            _bytes("kept_bytes", "kept by each iteration", "still allocated after an iteration"),
            _bytes("moved_bytes", "bytes moved", "operands and results of all operators", PEAKS),
            Metric(
                "operators",
                "operators",
                Unit.COUNT,
                "operators that one iteration runs",
                Join.LARGEST,
                tolerance=EXACT,
            ),
            Metric(
                "parameters",
                "parameters",
                Unit.COUNT,
                "trainable parameters",
                Join.EXACT,
                tolerance=EXACT,
            ),
            Metric(
                "flops",
                "FLOPs",
                Unit.FLOPS,
                "matrix products of the forward pass",
                Join.EXACT,
                tolerance=EXACT,
            ),
            Metric(
                "error",
                "error",
                Unit.RATIO,
                "relative error of the output against the float64 reference",
                Join.LARGEST,
            ),
            Metric(
                "energy_j",
                "energy",
                Unit.JOULES,
                "energy that the GPU used while timed",
                Join.MEDIAN,
            ),
            _recorded("setup_s", "set-up", Unit.SECONDS, "building the module and its inputs"),
            _recorded("warmup_s", "warm-up", Unit.SECONDS, "iterations before the samples"),
            _recorded(
                "warmup_iterations",
                "warm-up iterations",
                Unit.COUNT,
                "number of iterations before the samples",
            ),
            _recorded("temperature_c", "temperature", Unit.CELSIUS, "of the GPU"),
            _recorded("power_w", "power", Unit.WATTS, "of the GPU"),
            _recorded("load_before", "load before", Unit.COUNT, "one-minute load average"),
            _recorded("load_after", "load after", Unit.COUNT, "one-minute load average"),
        )
    }
)

# what two versions of a program are compared by, besides time
COUNTED = ("parameters", "flops", "operators", "allocated_peak_bytes", "saved_bytes")
