"""Time on the current CUDA device, between events."""

import math
import time
from collections import defaultdict

import torch

from attnbench.devices.protocol import PHASES
from attnbench.records import Sample

LONGEST_HOLD_S = 0.1
HOLD = 1.5  # times the enqueue time, which varies; doubled after each hold that was too short
FALL = 10  # consecutive hidden bursts after which the hold is halved again
# enqueue time of a burst, unless one iteration takes longer. The driver's queue takes about 1,000
# launches and events before it blocks the host: at 2 us each, the fastest, those of 2 ms
BURST_S = 0.002
NEGLIGIBLE = 0.01  # launches that take less of the device time are not worth a hold
CALIBRATION_SAMPLES_NEEDED = 3  # samples without a hold; the first of them loads kernels
PATIENCE = 3  # consecutive holds that ended before one iteration was enqueued
L2_FACTOR = 2  # a buffer this many times the second-level cache flushes it
# cycles of two kernels that spin after a sample; in their difference the launch overhead cancels
SPUN = 100_000, 300_000


class CudaStopwatch:
    """Device events around each phase; the queue is held until a burst of work is enqueued.

    The hold, a kernel that spins, hides launch latency. It lasts as long as enqueuing took in
    samples without one. A burst is as many iterations as can be enqueued during one hold, fewer
    after the queue has been full. Where the host waits for the device within an iteration, or
    enqueuing one takes longer than a hold may last, holds are abandoned, and `visible_launches`
    says so. With `cold`, each iteration starts with a flushed cache.

    A sample that may hide launches ends with further kernels that spin, to measure the clock rate
    at which it ran.
    """

    def __init__(self, cold: bool = False, device: str = "cuda") -> None:
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.cycles_per_s = getattr(properties, "clock_rate", 1_500_000) * 1000
        flush_bytes = L2_FACTOR * getattr(properties, "L2_cache_size", 1 << 26)
        self.flush = torch.empty(flush_bytes, dtype=torch.int8, device=device) if cold else None
        # the shortest times of one iteration in samples without a hold
        self.enqueue_s = self.device_s = math.inf
        self.calibration_samples = 0  # samples without a hold
        self.missed_holds = self.kept_holds = 0  # consecutive ones: too short, and long enough
        self.hold = HOLD
        self.most_iterations = math.inf  # of a burst
        self.visible_launches = ""

    @property
    def calibrating(self) -> bool:
        """Whether it is still unknown how long a hold must last."""
        return self.calibration_samples < CALIBRATION_SAMPLES_NEEDED and not self._negligible

    @property
    def hides_launches(self) -> bool:
        """Whether the next sample hides launches."""
        return not (self.calibrating or self._negligible or self.visible_launches)

    def reset(self, iterations: int, hide: bool = True) -> None:
        torch.cuda.synchronize()
        self.phases: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
        self.spun: list[torch.cuda.Event] = []
        self.may_hide = hide
        self.holds = hide and self.hides_launches
        self.to_come = iterations
        self.in_burst = 0
        self.enqueued_s = 0.0
        self.begun = time.perf_counter()
        self.cpu_begun = time.process_time()

    def start(self) -> None:
        if self.holds and self.in_burst == self.burst:
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
        enqueued_s = time.perf_counter() - self.held
        if self.may_hide:
            torch.cuda._sleep(SPUN[0])  # while the rest is enqueued
            self.spun = [self._event()]
            for cycles in SPUN:
                torch.cuda._sleep(cycles)
                self.spun.append(self._event())
        self.mark.synchronize()
        wall = time.perf_counter() - self.begun
        cpu = time.process_time() - self.cpu_begun
        self._finish_burst(enqueued_s)
        self.laps: defaultdict[str, float] = defaultdict(float)
        for phase, a, b in self.phases:
            self.laps[phase] += a.elapsed_time(b) / 1000
        device = sum(self.laps.values())
        forward, backward, step = (self.laps.get(phase, 0.0) for phase in PHASES)
        if not self.holds:
            self.calibration_samples += 1
            self.enqueue_s = min(self.enqueue_s, self.enqueued_s / iterations)
            self.device_s = min(self.device_s, device / iterations)
        return Sample(
            *(iterations, wall, cpu, device, forward, backward, step),
            enqueue_s=self.enqueued_s,
            clock_hz=self._clock_hz(),
        )

    @property
    def burst(self) -> int:
        """How many iterations one hold should hide."""
        return int(max(1, min(self.most_iterations, BURST_S / self.enqueue_s)))

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

    def _finish_burst(self, enqueued_s: float | None = None) -> None:
        """Wait for the device, and note whether the hold was long enough."""
        if enqueued_s is None:
            enqueued_s = time.perf_counter() - self.held
        torch.cuda.synchronize()
        self.enqueued_s += enqueued_s
        iterations = self.in_burst
        self.in_burst = 0
        if not self.holds:
            return
        if enqueued_s < self.hold_s:
            self.missed_holds = 0
            self.kept_holds += 1
            if self.kept_holds % FALL == 0:
                self.hold = max(HOLD, self.hold / 2)
            return
        self.kept_holds = 0
        if iterations > 1:  # the queue may have been full
            self.most_iterations = iterations // 2
            return
        self.missed_holds += 1
        self.hold *= 2
        if self.missed_holds == PATIENCE:
            self.holds = False  # the rest of the sample would only wait longer
            self.visible_launches = (
                "not hidden: the host waits for the device, enqueues slowly, or enqueues more"
                " kernels than the queue takes"
            )

    def _clock_hz(self) -> float | None:
        """The clock of the multiprocessors behind the sample."""
        if not self.spun:
            return None
        a, b, c = self.spun
        seconds = (b.elapsed_time(c) - a.elapsed_time(b)) / 1000
        return (SPUN[1] - SPUN[0]) / seconds if seconds > 0 else None

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
