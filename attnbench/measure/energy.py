"""Energy of one iteration: many in a row, between two steps of a counter.

Energy counters advance in steps, NVML's every 20 to 100 ms, so that the energy of a single lap
would mostly be that of its neighbours. One process has the device to itself; the others of its race
wait.
"""

import time
from collections.abc import Callable

from attnbench.devices.protocol import Unavailable

WINDOW_S, IDLE_S = 3.0, 1.0  # of iterations, and idle before them
STEPS = 10  # fewest steps of the counter in a window
STILL_S = WINDOW_S / STEPS  # a counter that stands still for longer is too coarse
TAKES_S = WINDOW_S + IDLE_S + 4 * STILL_S  # at most, except for the end of the last iteration


def per_iteration(
    joules: Callable[[], float],
    run: Callable[[float], int],
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, float]:
    """Joules of an iteration with and without an idle device's consumption, and watts of both.

    `run` runs whole iterations for the given seconds and returns their number. Raises
    `Unavailable`.
    """
    rested_s, rested_j = step(joules, clock)
    sleep(IDLE_S)
    begun_s, begun_j = step(joules, clock)
    idle_w = (begun_j - rested_j) / (begun_s - rested_s)
    begun_s, begun_j = step(joules, clock)
    count = run(WINDOW_S)
    done_s = clock()
    ended_s, ended_j = step(joules, clock)
    spent_j = ended_j - begun_j - idle_w * (ended_s - done_s)  # it was idle until the step
    took_s = done_s - begun_s
    return {
        "energy_j": spent_j / count,
        "net_energy_j": (spent_j - idle_w * took_s) / count,
        "power_w": spent_j / took_s,
        "idle_w": idle_w,
    }


def step(joules: Callable[[], float], clock: Callable[[], float]) -> tuple[float, float]:
    """The time of the counter's next step, and its joules then. Raises `Unavailable`."""
    before, begun = joules(), clock()
    while (now := joules()) == before:
        if clock() - begun > STILL_S:
            raise Unavailable(f"the energy counter did not change for {STILL_S:g} s")
    return clock(), now
