"""Time on the current CUDA device, between events."""

import math
import time
from collections import defaultdict

import torch

from attnbench.devices.protocol import PHASES
from attnbench.records import Sample

LONGEST_HOLD_S = 0.1
HOLD = 1.5  # times the time of enqueuing, which varies; twice as much after each that was too short
# enqueued during one hold, if one iteration does not take longer: about as many kernels as the
# driver's queue takes (1,024) before it makes the host wait
BURST_S = 0.005
NEGLIGIBLE = 0.01  # launches that take less of the device time are not worth a hold
LEARNING = 3  # samples without a hold; the first of them loads kernels
PATIENCE = 3  # consecutive holds that ended before everything was enqueued
L2_FACTOR = 2  # a buffer this many times the second-level cache flushes it


class CudaStopwatch:
    """Device events around each phase; the queue is held until a burst of work is enqueued.

    The hold, a kernel that spins, hides launch latency. It lasts as long as enqueuing took in
    samples without one. A burst is as many iterations as can be enqueued during one hold. Where the
    host waits for the device within an iteration, or enqueuing takes longer than a hold may last,
    holds are abandoned, and `visible_launches` says so. With `cold`, each iteration starts with a
    flushed cache.
    """

    def __init__(self, cold: bool = False, device: str = "cuda") -> None:
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.cycles_per_s = getattr(properties, "clock_rate", 1_500_000) * 1000
        flush_bytes = L2_FACTOR * getattr(properties, "L2_cache_size", 1 << 26)
        self.flush = torch.empty(flush_bytes, dtype=torch.int8, device=device) if cold else None
        # the shortest times of one iteration in samples without a hold
        self.enqueue_s = self.device_s = math.inf
        self.learnt = self.late = 0  # samples without a hold; consecutive holds that were too short
        self.hold = HOLD
        self.visible_launches = ""

    @property
    def learning(self) -> bool:
        """Whether it is still unknown how long a hold must last."""
        return self.learnt < LEARNING and not self._negligible

    @property
    def hiding(self) -> bool:
        """Whether the next sample hides launches."""
        return not (self.learning or self._negligible or self.visible_launches)

    def reset(self, iterations: int, hide: bool = True) -> None:
        torch.cuda.synchronize()
        self.phases: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
        self.holds = hide and self.hiding
        self.burst = max(1, int(BURST_S / self.enqueue_s)) if self.holds else iterations
        self.to_come, self.in_burst, self.enqueued_s = iterations, 0, 0.0
        self.begun, self.cpu_begun = time.perf_counter(), time.process_time()

    def start(self) -> None:
        if self.in_burst == self.burst:
            self._finish_burst()
        if not self.in_burst:
            self._begin_burst()
        self.in_burst += 1
        self.to_come -= 1
        if self.flush is not None:
            self.flush.zero_()
        self.mark = self._event()

    def lap(self, phase: str) -> None:
        now = self._event()
        self.phases.append((phase, self.mark, now))
        self.mark = now

    def sample(self, iterations: int) -> Sample:
        self._finish_burst()
        wall, cpu = time.perf_counter() - self.begun, time.process_time() - self.cpu_begun
        self.laps: defaultdict[str, float] = defaultdict(float)
        for phase, a, b in self.phases:
            self.laps[phase] += a.elapsed_time(b) / 1000
        device = sum(self.laps.values())
        forward, backward, step = (self.laps.get(phase, 0.0) for phase in PHASES)
        if not self.holds:
            self.learnt += 1
            self.enqueue_s = min(self.enqueue_s, self.enqueued_s / iterations)
            self.device_s = min(self.device_s, device / iterations)
        return Sample(
            *(iterations, wall, cpu, device, forward, backward, step), enqueue_s=self.enqueued_s
        )

    @property
    def _negligible(self) -> bool:
        return self.enqueue_s <= NEGLIGIBLE * self.device_s < math.inf

    def _begin_burst(self) -> None:
        self.hold_s = 0.0
        if self.holds:
            iterations = min(self.burst, self.to_come)
            self.hold_s = min(self.hold * iterations * self.enqueue_s, LONGEST_HOLD_S)
            torch.cuda._sleep(int(self.hold_s * self.cycles_per_s))
        self.held = time.perf_counter()

    def _finish_burst(self) -> None:
        """Wait for the device, and note whether the hold was long enough."""
        enqueued_s = time.perf_counter() - self.held
        torch.cuda.synchronize()
        self.enqueued_s += enqueued_s
        self.in_burst = 0
        if not self.holds:
            return
        if enqueued_s < self.hold_s:
            self.late = 0
            return
        self.late += 1
        self.hold *= 2
        if self.late == PATIENCE:
            self.visible_launches = "not hidden: the host waits for the device, or enqueues slowly"

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
