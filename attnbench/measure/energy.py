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

Reading = tuple[float, float]  # seconds and joules


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


def step(joules: Callable[[], float], clock: Callable[[], float]) -> Reading:
    """The time of the counter's next step, and its value then. Raises `Unavailable`."""
    before, begun = joules(), clock()
    while (now := joules()) == before:
        if clock() - begun > STILL_S:
            raise Unavailable(f"the energy counter did not change for {STILL_S:g} s")
    return clock(), now


def watts(begun: Reading, ended: Reading) -> float:
    """The mean power between two moments."""
    return (ended[1] - begun[1]) / (ended[0] - begun[0])
