"""All metrics: label, unit, description, how rounds combine, which way is better, tolerance.

One table. Whatever compares, combines or prints a metric reads its row here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Unit(StrEnum):
    """The unit of a number; only `units` turns numbers into text."""

    SECONDS = "s"
    BYTES = "bytes"
    FLOPS = "FLOPs"
    JOULES = "J"
    WATTS = "W"
    CELSIUS = "°C"
    HERTZ = "Hz"
    COUNT = "count"
    RATE = "1/s"
    RATIO = "ratio"
    EXPONENT = "exponent"


class Better(StrEnum):
    """Which way a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


class Join(StrEnum):
    """How the values of several rounds are combined into one."""

    GEOMETRIC_MEAN = "geometric mean"  # times: rounds differ by factors
    MEDIAN = "median"
    LARGEST = "largest"  # peaks: what the case may need
    EXACT = "exact"  # every round gives the same value


@dataclass(frozen=True)
class Metric:
    """One row of the table.

    Two counts that differ by at most `tolerance`, relative to the first, are the same; it is None
    for what is timed or only recorded. A summary has the standard errors of its logarithm, and
    their degrees of freedom, as `{errors}_log_se` and `{errors}_df`. Only a `signed` one may be
    negative.
    """

    key: str
    label: str
    unit: Unit
    description: str
    join: Join
    better: Better = Better.LOWER
    tolerance: float | None = None
    errors: str = ""
    signed: bool = False

    @property
    def exact(self) -> bool:
        """Whether its values are counted and have no error."""
        return self.join in (Join.LARGEST, Join.EXACT) and self.unit is not Unit.SECONDS


# counts of the program's work: any difference is a change of the program
EXACT = 0.0
# kernels allocate workspaces whose size depends on the processor
PEAKS = 0.01


def _time(key: str, label: str, description: str, errors: str = "") -> Metric:
    return Metric(key, label, Unit.SECONDS, description, Join.GEOMETRIC_MEAN, errors=errors)


def _bytes(
    key: str, label: str, description: str, tolerance: float | None = None, signed: bool = False
) -> Metric:
    unit, join = Unit.BYTES, Join.LARGEST
    return Metric(key, label, unit, description, join, tolerance=tolerance, signed=signed)


def _count(key: str, label: str, unit: Unit, description: str, join: Join) -> Metric:
    return Metric(key, label, unit, description, join, tolerance=EXACT)


def _recorded(
    key: str,
    label: str,
    unit: Unit,
    description: str,
    join: Join = Join.MEDIAN,
    signed: bool = False,
) -> Metric:
    return Metric(key, label, unit, description, join, Better.NEITHER, signed=signed)


ROWS = (
    _time("time_s", "time", "one iteration, by the clock of the sweep", "time"),
    _time("wall_s", "wall time", "one iteration; on a GPU without holding its queue"),
    _time("cpu_s", "CPU time", "one iteration, process time of all threads"),
    _time("device_s", "device time", "one iteration, between two events of the GPU"),
    _time("enqueue_s", "enqueue time", "one iteration, until the host has enqueued all of it"),
    _time("forward_s", "forward", "forward pass and loss"),
    _time("backward_s", "backward", "backward pass"),
    _time("step_s", "step", "optimiser step"),
    _time("forward_backward_s", "forward + backward", "without the optimiser step"),
    _time("token_s", "time per token", "time over B · N; in decode over B", "time"),
    Metric(
        *("tokens_per_s", "tokens per second", Unit.RATE, "1 / time per token"),
        Join.GEOMETRIC_MEAN,
        Better.HIGHER,
        errors="time",
    ),
    _time("tpot_s", "time per output token (TPOT)", "decode: one step, to token N", "time"),
    _time(
        *("ttft_s", "time to first token (TTFT)", "decode: the pass over a prompt of N − 1 tokens"),
        errors="ttft",
    ),
    _recorded(
        *("filled_ratio", "filled over prompt", Unit.RATIO),
        "decode: a step from a filled state, over one from a prompt's",
    ),
    _bytes("allocated_peak_bytes", "allocated peak", "most bytes allocated at once", PEAKS),
    _bytes("allocated_delta_bytes", "allocated above inputs", "above what was allocated before"),
    _bytes("reserved_peak_bytes", "reserved peak", "most bytes that torch reserved on the GPU"),
    _bytes("resident_peak_bytes", "resident peak", "physical memory, code and libraries included"),
    _bytes("resident_delta_bytes", "resident above start", "above what was resident before"),
    _bytes("device_process_bytes", "process peak (NVML)", "most bytes according to the driver"),
    _bytes("saved_bytes", "saved for backward", "tensors that autograd keeps", PEAKS, signed=True),
    _bytes(
        "kept_bytes", "kept by each iteration", "still allocated after the iteration", signed=True
    ),
    _bytes("state_bytes", "state", "what decoding keeps of N tokens", EXACT),
    _bytes("moved_bytes", "bytes moved", "operands and results of all operators", PEAKS),
    _count("operators", "operators", Unit.COUNT, "operators of one iteration", Join.LARGEST),
    _count("parameters", "parameters", Unit.COUNT, "trainable parameters", Join.EXACT),
    _count("flops", "FLOPs", Unit.FLOPS, "matrix products of the forward pass", Join.EXACT),
    Metric("error", "error", Unit.RATIO, "relative, against the float64 reference", Join.LARGEST),
    Metric(
        *("energy_j", "energy", Unit.JOULES, "of the GPU during samples and holds", Join.MEDIAN),
        signed=True,
    ),
    _recorded("setup_s", "set-up", Unit.SECONDS, "building the module and its inputs"),
    _recorded("compile_s", "compile time", Unit.SECONDS, "before any iteration", Join.LARGEST),
    _recorded("recompiles", "recompiled", Unit.COUNT, "graphs, after the warm-up", Join.LARGEST),
    _recorded("warmup_s", "warm-up", Unit.SECONDS, "iterations before the samples"),
    _recorded("warmup_iterations", "warm-up iterations", Unit.COUNT, "before the samples"),
    _recorded("retaken_s", "taken again", Unit.SECONDS, "samples that had been disturbed"),
    _recorded("fault_share", "page faults", Unit.RATIO, "of the time of samples"),
    _recorded("stolen_share", "stolen", Unit.RATIO, "time of all cores, by the host"),
    _recorded("probe_s", "probe", Unit.SECONDS, "fixed work beside each sample"),
    _recorded("temperature_c", "temperature", Unit.CELSIUS, "of the GPU", signed=True),
    _recorded("power_w", "power", Unit.WATTS, "of the GPU"),
    _recorded("sm_clock_hz", "clock", Unit.HERTZ, "of the multiprocessors of the GPU"),
    _recorded("throttled_s", "throttled", Unit.SECONDS, "time at a lowered clock"),
    _recorded(
        *("context_bytes", "context", Unit.BYTES, "of a process, beyond what torch reserved"),
        signed=True,
    ),
    _recorded("workspace_bytes", "workspace", Unit.BYTES, "of cuBLAS, not in the allocated peak"),
    _recorded("device_before_bytes", "GPU before", Unit.BYTES, "of all processes, before a case"),
    _recorded("device_used_bytes", "GPU peak", Unit.BYTES, "of all processes, while it ran"),
    _recorded("load_before", "load before", Unit.COUNT, "one-minute load average"),
    _recorded("load_after", "load after", Unit.COUNT, "one-minute load average"),
)
TABLE: Mapping[str, Metric] = MappingProxyType({row.key: row for row in ROWS})

# the metrics besides time in which two versions of a program are compared
COUNTED = (
    *("parameters", "flops", "operators", "allocated_peak_bytes", "saved_bytes"),
    "state_bytes",
)
