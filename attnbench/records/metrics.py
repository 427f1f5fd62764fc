"""All metrics: what each is, how rounds combine, which way is better, and where it is shown.

One table. Whatever compares, combines, draws or prints a metric reads its row here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import MappingProxyType


class Unit(StrEnum):
    """The unit of a number; only `units` turns numbers into text."""

    SECONDS = "s"
    BYTES = "bytes"
    FLOPS = "FLOPs"
    JOULES = "J"
    WATTS = "W"
    HERTZ = "Hz"
    COUNT = "count"
    RATE = "tokens/s"
    RATIO = "ratio"
    EXPONENT = "exponent"


class Better(StrEnum):
    """Which way a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


class Join(StrEnum):
    """How the values of several rounds are combined into one."""

    GEOMETRIC_MEAN = "geometric mean"  # costs with an interval: rounds differ by factors
    MEDIAN = "median"  # conditions of the measurement
    LARGEST = "largest"  # peaks: what the case may need; and counts, which are the same


LAYERED = (Unit.SECONDS, Unit.BYTES, Unit.JOULES, Unit.RATE)  # what adds up over layers


@dataclass(frozen=True)
class Metric:
    """One row of the table; its `key` ends in its unit.

    Two counts are the same if they differ by at most `tolerance`, relative to the first; it is None
    for metrics that are timed or only recorded. Only a `signed` metric may be negative.

    Every metric is in the CSV of all cases; what people compare is `offered` in a page's menu.
    Claims, growth tables and `Sweep.plot` refer to it by its `name`. Reports may have a `table` of
    it by length, and a `figure` (the stem of its file name), per token or per batch; both are
    headed by its `title`, or else its label. `compare` and `check` judge the `compared` ones: costs
    by their intervals, counts by their tolerance.
    """

    key: str
    label: str
    description: str
    unit: Unit
    join: Join
    better: Better = Better.LOWER
    tolerance: float | None = None
    signed: bool = False
    name: str = ""
    title: str = ""
    table: bool = False  # made from this row alone; those of time, memory and decoding say more
    figure: str = ""
    per_token: bool = False
    compared: bool = False

    @property
    def heading(self) -> str:
        """Its title, or else its label, to begin a line with."""
        text = self.title or self.label
        return text[0].upper() + text[1:]

    @property
    def offered(self) -> bool:
        """Whether people compare it: a cost with an interval, a count, or what has a name."""
        return self.interval or self.compared or bool(self.name)

    @property
    def of_a_layer(self) -> bool:
        """Whether reports divide it by the layers of a stack, where they compare per layer."""
        return self.better is not Better.NEITHER and self.unit in LAYERED

    @property
    def interval(self) -> bool:
        """Whether a summary has an estimate of it."""
        return self.join is Join.GEOMETRIC_MEAN

    @property
    def estimate(self) -> tuple[str, str, str, str, str]:
        """The columns of an estimate: value, interval, standard error of its logarithm, and df.

        Those of `time_s` are `time_s`, `time_lo_s`, `time_hi_s`, `time_log_se` and `time_df`.
        """
        stem, _, unit = self.key.rpartition("_")
        return self.key, f"{stem}_lo_{unit}", f"{stem}_hi_{unit}", f"{stem}_log_se", f"{stem}_df"


TIME = "time_s"
MEMORY = "allocated_peak_bytes"
STATE = "state_bytes"
# of what a summary predicts where it was not measured, the columns of its predictions
PREDICTED: Mapping[str, str] = MappingProxyType({TIME: "predicted_s", MEMORY: "predicted_bytes"})

# counts of the program's work: any difference is a change of the program
EXACT = 0.0
# kernels allocate workspaces whose size depends on the processor
PEAKS = 0.01

_time = partial(Metric, unit=Unit.SECONDS, join=Join.GEOMETRIC_MEAN)
_bytes = partial(Metric, unit=Unit.BYTES, join=Join.LARGEST)
_count = partial(Metric, join=Join.LARGEST, tolerance=EXACT, compared=True)
_recorded = partial(Metric, join=Join.MEDIAN, better=Better.NEITHER)

ROWS = (
    _time(TIME, "time", "one iteration, by the clock of the sweep",
          name="time", figure="fig2", compared=True),
    _time("wall_s", "wall time", "one iteration; on a GPU without holding its queue"),
    _time("cpu_s", "CPU time", "one iteration, process time of all threads"),
    _time("device_s", "device time", "one iteration, between two events of the GPU"),
    _time("enqueue_s", "enqueue time", "one iteration, until the host has enqueued all of it"),
    _time("forward_s", "forward", "forward pass and loss"),
    _time("backward_s", "backward", "backward pass"),
    _time("step_s", "step", "optimiser step"),
    _time("forward_backward_s", "forward + backward", "without the optimiser step"),
    _time("token_s", "time per token", "time over B · N; in decode over B · S"),
    Metric("tokens_per_s", "tokens per second", "1 / time per token", Unit.RATE,
           Join.GEOMETRIC_MEAN, Better.HIGHER),
    _bytes(MEMORY, "allocated peak", "most bytes allocated at once", tolerance=PEAKS,
           name="memory", title="peak allocated memory", figure="memory", per_token=True,
           compared=True),
    _bytes("allocated_delta_bytes", "allocated above inputs", "above what was allocated before"),
    _bytes("reserved_peak_bytes", "reserved peak", "most bytes that torch reserved on the GPU"),
    _bytes("device_process_bytes", "process peak (NVML)", "most bytes according to the driver"),
    _bytes("grown_bytes", "growth of the process", "most that it had in memory beyond its start,"
           " with what torch did not allocate", signed=True),
    _bytes("saved_bytes", "saved for backward", "tensors that autograd keeps", tolerance=PEAKS,
           signed=True, compared=True),
    _bytes("kept_bytes", "kept by each iteration", "still allocated after the iteration",
           signed=True),
    _bytes(STATE, "state", "what decoding keeps of N tokens", tolerance=EXACT,
           name="state", compared=True),
    _bytes("moved_bytes", "bytes moved", "operands and results of all operators", tolerance=PEAKS),
    _count("operators", "operators", "operators of one iteration", Unit.COUNT),
    _count("garbage", "garbage", "objects that an iteration leaves to the collector", Unit.COUNT),
    _count("parameters", "parameters", "trainable parameters", Unit.COUNT),
    _count("flops", "FLOPs", "matrix products of the forward pass", Unit.FLOPS),
    Metric("core_flops", "FLOPs of the core", "matrix products of the attention alone", Unit.FLOPS,
           Join.LARGEST, tolerance=EXACT, name="core_flops"),
    Metric("projection_flops", "FLOPs of projections", "into and out of the attention", Unit.FLOPS,
           Join.LARGEST, tolerance=EXACT, name="projection_flops"),
    Metric("error", "error", "relative, against the float64 reference", Unit.RATIO, Join.LARGEST),
    Metric("energy_j", "energy", "one iteration, of the GPU (--energy)", Unit.JOULES,
           Join.GEOMETRIC_MEAN, signed=True),
    _recorded("kernels", "kernels", "on the GPU, of one iteration", Unit.COUNT),
    _recorded("over_bound", "time over the bound",
              "the bound is the longer of two times: all matrix products at the peak rate"
              " of this machine, and reading and writing parameters, inputs and outputs"
              " once at the rate of a large copy; what has few products is far above it in any"
              " implementation", Unit.RATIO, name="over_bound", table=True),
    _recorded("peak_share", "share of peak", "of the FLOP/s of a large matrix product here",
              Unit.RATIO, name="peak_share"),
    _recorded("setup_s", "set-up", "building the module, its inputs and its state", Unit.SECONDS),
    _recorded("compile_s", "compile time", "before any iteration", Unit.SECONDS, join=Join.LARGEST),
    _recorded("warmup_s", "warm-up", "iterations before the samples", Unit.SECONDS),
    _recorded("warmup_iterations", "warm-up iterations", "before the samples", Unit.COUNT),
    _recorded("examination_s", "examination", "looking for odd behaviour, after the samples",
              Unit.SECONDS),
    _recorded("power_w", "power", "while energy was measured", Unit.WATTS),
    _recorded("sm_clock_hz", "clock", "of the multiprocessors, behind each sample", Unit.HERTZ),
    _recorded("throttled_s", "throttled", "time at a lowered clock", Unit.SECONDS),
    _recorded("context_bytes", "context", "of a process, beyond what torch reserved", Unit.BYTES,
              signed=True),
    _recorded("workspace_bytes", "workspace", "of cuBLAS, not in the allocated peak", Unit.BYTES),
    _recorded("load_before", "load before", "one-minute load average", Unit.COUNT),
)  # fmt: skip
TABLE: Mapping[str, Metric] = MappingProxyType({row.key: row for row in ROWS})
NAMED: Mapping[str, Metric] = MappingProxyType({row.name: row for row in ROWS if row.name})

DRAWN = tuple(row for row in ROWS if row.figure)
# what is compared between two sweeps or two versions of a program: by counts, and by races
COUNTED = tuple(row.key for row in ROWS if row.compared and not row.interval)
RACED = tuple(row.key for row in ROWS if row.compared and row.interval)
