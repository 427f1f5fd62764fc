"""What is measured of a case after its laps, while the others of its race wait.

The energy of an iteration, if requested, and for a launch-bound case the time of one as CUDA
graphs, which need no launches.
"""

import math
import time
from functools import partial
from statistics import median
from typing import Any

from attnbench.devices.protocol import Unavailable, ValuesAndNotes
from attnbench.devices.timing import sample
from attnbench.measure.cards import Unmeasured
from attnbench.measure.energy import TAKES_S, per_iteration
from attnbench.measure.samples import captured
from attnbench.measure.server import described

CHUNK_S = 0.1  # of iterations that are enqueued before the host waits for them
REPLAYS_S, REPLAYS = 0.03, 5  # of one sample of replays, and number of samples
NOT_CAPTURED = "replays"  # the note on a failed capture, which may leave the device unusable


def further(built: Any, left_s: float = math.inf) -> ValuesAndNotes:
    """Values and notes on what `Worker.build` built, within the `left_s` of the budget."""
    values, notes = energy(built, left_s) if built.energy else ({}, {})
    if is_launch_bound(built) and built.device.captures and not built.cuda_graphs:
        replayed, wrong = replays(built)
        values, notes = values | replayed, notes | wrong
    return values, notes


def is_launch_bound(built: Any) -> bool:
    """Whether the host takes longer to enqueue an iteration than the device to run it."""
    shares = [s.enqueue_s / s.device_s for s in built.laps if s.device_s and s.enqueue_s]
    return bool(shares) and median(shares) > 1


def energy(built: Any, left_s: float) -> ValuesAndNotes:
    """The energy of an iteration, or why it is unknown."""
    if TAKES_S + built.iteration_s > left_s:
        return {}, {"energy": "the budget ended before it was measured"}

    def run(seconds: float) -> int:
        count, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            chunk = math.ceil(CHUNK_S / max(built.iteration_s, 1e-6))
            for _ in range(chunk):
                built.clear()
                built.iterate(lambda phase: None)
            built.device.synchronise()
            count += chunk
        return count

    try:
        return per_iteration(built.device.joules, run), {}
    except Unavailable as error:
        return {}, {"energy": str(error)}


def replays(built: Any) -> ValuesAndNotes:
    """The wall time of an iteration as CUDA graphs, the median of a few samples, or why not."""
    try:
        replay = captured(built.device, built.subject)
        take = partial(sample, replay, lambda: None, built.device.stopwatch(), hide=False)
        count = math.ceil(REPLAYS_S / max(take(1).wall_s, 1e-6))
        walls = [take(count).wall_s / count for _ in range(REPLAYS)]
    except Unmeasured as error:
        return {}, {NOT_CAPTURED: str(error)}
    except Exception as error:
        return {}, {NOT_CAPTURED: described(error)}
    return {"replay_s": median(walls)}, {}
