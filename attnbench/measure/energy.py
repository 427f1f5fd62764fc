"""Energy of one iteration: many in a row, between two steps of a counter.

Counters of energy move in steps, NVML's each 20 to 100 ms, so that the energy of a lap would
mostly be that of its neighbours. One process has the device for itself, the others of its race
wait.
"""

import time
from collections.abc import Callable

from attnbench.devices.protocol import Unavailable

WINDOW_S, IDLE_S = 3.0, 1.0  # of iterations, and without any before them
STEPS = 10  # of the counter, of which a window has at least so many
STILL_S = WINDOW_S / STEPS  # a counter that rests for longer is too coarse
TAKES_S = WINDOW_S + IDLE_S + 4 * STILL_S  # at most, but for the end of the last iteration

Moment = tuple[float, float]  # seconds and joules


def per_iteration(
    joules: Callable[[], float],
    run: Callable[[float], int],
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, float]:
    """Joules of an iteration with and without what an idle device consumes, and watts of both.

    `run` runs iterations for so many seconds, to their end, and gives their number. Raises
    `Unavailable`.
    """
    begun = step(joules, clock)
    sleep(IDLE_S)
    idle_w = watts(begun, step(joules, clock))
    begun = step(joules, clock)
    count = run(WINDOW_S)
    done_s = clock()
    ended = step(joules, clock)
    spent_j = ended[1] - begun[1] - idle_w * (ended[0] - done_s)  # it was idle until the step
    took_s = done_s - begun[0]
    return {
        "energy_j": spent_j / count,
        "net_energy_j": (spent_j - idle_w * took_s) / count,
        "power_w": spent_j / took_s,
        "idle_w": idle_w,
    }


def step(joules: Callable[[], float], clock: Callable[[], float]) -> Moment:
    """When the counter moves next, and to what. Raises `Unavailable`."""
    before, begun = joules(), clock()
    while (now := joules()) == before:
        if clock() - begun > STILL_S:
            raise Unavailable(f"the counter of energy rests for more than {STILL_S:g} s")
    return clock(), now


def watts(begun: Moment, ended: Moment) -> float:
    """The mean power between two moments."""
    return (ended[1] - begun[1]) / (ended[0] - begun[0])
