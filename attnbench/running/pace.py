"""The speed of the core on which processes are measured, while they run.

Other guests of a host, and work on the core's other hardware thread, slow it by tens of per cent
for milliseconds or minutes, which lengthens CPU time too. So a process on the same core repeats a
small product every 25 ms, 3 % of the time, and its time serves as a control variate
(`analysis.statistics.ratios`). Measured on a shared host for 150 s, the CPU time of iterations of
0.15 to 0.7 s varied by 7 to 17 %, and relative to the probes beside them by 2 to 7 %: the two
correlate at 0.8 to 0.95. A probe before and after each lap, in the lap's process, correlated too
little (0.4 to 0.6).
"""

import math
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from statistics import harmonic_mean

from attnbench.records import Disturbance, Sample, messages
from attnbench.running.process import Process

LIMIT_S = 60.0  # of an answer
# A lap whose probes took longer than usual by this share ran on a slow core.
SLOW = 0.25
LATELY = 4096  # recent probes, of two minutes, whose lower quartile is the usual time


class Pace(AbstractContextManager["Pace"]):
    """A process that probes the core of all others; a context manager.

    `start` starts it, and again if it has ended.
    """

    def __init__(self, start: Callable[[], Process], core: int) -> None:
        self.start = start
        self.core = core
        self.process: Process | None = None
        self.recent_s: deque[float] = deque(maxlen=LATELY)

    def __exit__(self, *error: object) -> None:
        if self.process is not None:
            self.process.end()

    def reset(self) -> None:
        """Make sure that the core is probed; the probes so far belong to no lap."""
        if self.process is None or not self.process.alive:
            self.process = self.start()
        self.recent_s.extend(self.new_times_s())

    def with_pace(self, sample: Sample) -> Sample:
        """The sample just taken, with the time of a probe during it, if known."""
        probes = self.new_times_s()
        self.recent_s.extend(probes)
        if not self.recent_s:
            return sample
        # a lap takes as long as its work does at the mean speed
        pace_s = harmonic_mean(probes or [self.recent_s[-1]])
        usual_s = sorted(self.recent_s)[len(self.recent_s) // 4]
        slow = Disturbance.SLOW_CORE if pace_s > (1 + SLOW) * usual_s else None
        return sample._replace(pace_s=pace_s, disturbed=sample.disturbed or slow)

    def new_times_s(self) -> list[float]:
        """Seconds of each probe since the last call; none if the process has ended."""
        assert self.process is not None
        answer = self.process.ask(messages.Probe(core=self.core), LIMIT_S)
        if isinstance(answer, messages.Failure):
            return []
        return [probe_s for probe_s in answer.probes if 0 < probe_s < math.inf]
