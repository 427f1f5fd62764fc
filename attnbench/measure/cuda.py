"""The current CUDA device: times from events, and peaks of device memory."""

import math
import threading
import time

import torch

from attnbench.device import Weighed
from attnbench.measure import nvml
from attnbench.measure.counting import FUSED, Counter
from attnbench.measure.subject import Subject, iteration
from attnbench.records import Sample

LONGEST_HOLD_S = 0.1
HOLD = 1.5  # times the time of enqueuing, which varies
LEARNING = 3  # samples without a hold; the first of them loads kernels
PATIENCE = 3  # consecutive holds that ended before everything was enqueued
L2_FACTOR = 2  # a buffer this many times the second-level cache flushes it


class CudaStopwatch:
    """Device events around each phase; the queue is held until a sample is enqueued.

    The hold, a kernel that spins, hides launch latency. It lasts as long as enqueuing took in the
    first samples, which run without one. Where the host waits for the device within an iteration,
    or enqueuing takes longer than a hold may last, holds are abandoned, and `visible_launches` says
    so. With `cold`, each iteration starts with a flushed cache.
    """

    def __init__(self, cold: bool = False) -> None:
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.cycles_per_s = getattr(properties, "clock_rate", 1_500_000) * 1000
        flush_bytes = L2_FACTOR * getattr(properties, "L2_cache_size", 1 << 26)
        self.flush = torch.empty(flush_bytes, dtype=torch.int8, device="cuda") if cold else None
        self.enqueue_s = math.inf  # the shortest time to enqueue one iteration without a hold
        self.learnt = self.late = 0  # samples without a hold; consecutive holds that were too short
        self.visible_launches = ""

    def reset(self, iterations: int) -> None:
        torch.cuda.synchronize()
        self.phases: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
        holds = self.learnt >= LEARNING and not self.visible_launches
        hold_s = HOLD * iterations * self.enqueue_s if holds else 0.0
        self.hold_s = min(hold_s, LONGEST_HOLD_S)
        self.begun, self.cpu_begun = time.perf_counter(), time.process_time()
        if self.hold_s:
            torch.cuda._sleep(int(self.hold_s * self.cycles_per_s))
        self.held = time.perf_counter()

    def start(self) -> None:
        if self.flush is not None:
            self.flush.zero_()
        self.mark = self._event()

    def lap(self, phase: str) -> None:
        now = self._event()
        self.phases.append((phase, self.mark, now))
        self.mark = now

    def sample(self, iterations: int) -> Sample:
        self._learn(time.perf_counter() - self.held, iterations)
        torch.cuda.synchronize()
        wall, cpu = time.perf_counter() - self.begun, time.process_time() - self.cpu_begun
        laps = {"forward": 0.0, "backward": 0.0, "step": 0.0}
        for phase, a, b in self.phases:
            laps[phase] += a.elapsed_time(b) / 1000
        forward, backward, step = laps.values()
        return Sample(iterations, wall, cpu, forward + backward + step, forward, backward, step)

    def _learn(self, enqueued_s: float, iterations: int) -> None:
        """Set the length of later holds by the time that enqueuing a sample took."""
        if not self.hold_s:
            self.learnt += 1
            self.enqueue_s = min(self.enqueue_s, enqueued_s / iterations)
            return
        self.late = self.late + 1 if enqueued_s >= self.hold_s else 0
        if self.late == PATIENCE:
            self.visible_launches = "not hidden: the host waits for the device, or enqueues slowly"

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def weigh(subject: Subject, uuid: str) -> Weighed:
    """Allocated and reserved peak, saved bytes, counts, and the process's peak from NVML.

    The first iteration warms up (autotuning allocates), the second is measured, and operators are
    counted in the third.
    """
    iterate = iteration(subject)
    iterate(lambda phase: None)
    subject.clear()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()  # otherwise what the warm-up reserved would count
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    saved: dict[str, int] = {}
    with ProcessPeak(uuid) as process:
        iterate(lambda phase: saved.update({phase: torch.cuda.memory_allocated() - before}))
        torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    values: dict[str, float] = {
        "allocated_peak_bytes": peak,
        "allocated_delta_bytes": peak - before,
        "reserved_peak_bytes": torch.cuda.max_memory_reserved(),
        "saved_bytes": saved["forward"],
    }
    notes = {}
    if process.peak_bytes:
        values["device_process_bytes"] = process.peak_bytes
    else:
        notes["nvml"] = process.reason
    subject.clear()
    values["kept_bytes"] = torch.cuda.memory_allocated() - before
    if subject.compiles:
        return values, notes | {"operators": FUSED}
    counter = Counter()
    with counter:
        iterate(lambda phase: None)
    return values | counter.values, notes | counter.notes


class ProcessPeak:
    """Polls NVML for this process's device memory while the `with` block runs.

    `peak_bytes` stays 0 where NVML hides the process, as in many containers; `reason` says why.
    """

    PERIOD_S = 0.002

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self.peak_bytes, self.reason = 0, ""

    def __enter__(self) -> "ProcessPeak":
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _poll(self) -> None:
        """Poll until the end and once after it: a short iteration may lie between two polls."""
        over = False
        while not over:
            over = self._done.wait(self.PERIOD_S)
            try:
                self.peak_bytes = max(self.peak_bytes, nvml.process_bytes(self.uuid))
            except nvml.Unavailable as error:
                self.reason = str(error)
                return
