"""Energy of one iteration: many in a row after the laps, between two steps of a counter.

Counters of energy advance in steps, NVML's every 20 to 100 ms, so that the energy of a single lap
would mostly be its neighbours'. One process has the device to itself; the others of its race
wait.
"""

import math
import time
from collections.abc import Callable

from attnbench.devices.protocol import Device, Unavailable, ValuesAndNotes
from attnbench.records import notes

WINDOW_S = 3.0  # of iterations
STEPS = 10  # fewest steps of the counter in a window
STILL_S = WINDOW_S / STEPS  # a counter that stands still for longer is too coarse
TAKES_S = WINDOW_S + 3 * STILL_S  # at most, except for the end of the last iteration
CHUNK_S = 0.1  # of iterations that are enqueued before the host waits for them


def energy(
    run: Callable[[], None], device: Device, iteration_s: float, left_s: float
) -> ValuesAndNotes:
    """Joules of an iteration, and watts meanwhile; or why they were not measured.

    run:         runs one iteration
    device:      has the counter of energy
    iteration_s: seconds of one iteration, about
    left_s:      seconds until the budget ends
    """
    if TAKES_S + iteration_s > left_s:
        return {}, {notes.Note.ENERGY: "the budget ended before it was measured"}
    joules = device.joules
    count = 0
    chunk = math.ceil(CHUNK_S / max(iteration_s, 1e-6))
    try:
        begun_s, begun_j = step(joules)
        while time.perf_counter() - begun_s < WINDOW_S:
            for _ in range(chunk):
                run()
            device.synchronise()
            count += chunk
        done_s = time.perf_counter()
        ended_s, ended_j = step(joules)
        rested_s, rested_j = step(joules)
    except Unavailable as error:
        return {}, {notes.Note.ENERGY: str(error)}
    idle_w = (rested_j - ended_j) / (rested_s - ended_s)
    spent_j = ended_j - begun_j - idle_w * (ended_s - done_s)  # it was idle until the step
    return {"energy_j": spent_j / count, "power_w": spent_j / (done_s - begun_s)}, {}


def step(joules: Callable[[], float]) -> tuple[float, float]:
    """The time of the counter's next step, and its joules then. Raises `Unavailable`."""
    before = joules()
    begun = time.perf_counter()
    while (after := joules()) == before:
        if time.perf_counter() - begun > STILL_S:
            raise Unavailable(f"the energy counter did not change for {STILL_S:g} s")
    return time.perf_counter(), after
