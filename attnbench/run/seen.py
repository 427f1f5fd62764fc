"""What a parent sees of the time of its processes, which bounds what they report themselves.

A mechanism can change anything in the process that times it, the clocks too, but not how long the
parent waits for a lap, nor the CPU time that the kernel counts. The bounds are wide: they are to
catch times that are made up, and no load of the machine may exceed them.
"""

import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from attnbench.records import Sample

# The kernel counts in hundredths of a second; two kinds of time, at two ends.
TICKS_S = 0.05
# Laps may take this many times what is claimed, as samples are taken up to three times and one
# iteration is repeated, plus this many seconds each, as rehearsals take at most 0.1 s.
MOST, LAP_S = 4.0, 0.25
IDLE = 0.02  # share of a wait in which a process may compute: runtimes poll


@dataclass
class ObservedTimes:
    """Seconds of one process; those of CPU time are NaN where the system does not say them."""

    waited_s: float = 0.0  # by the parent, for answers
    used_s: float = 0.0  # of CPU time until an answer was there
    rested_s: float = 0.0  # without a question
    idle_s: float = 0.0  # of CPU time meanwhile
    user_s: float = 0.0  # of `used_s`, without the kernel's share, such as of page faults

    def added_to(self, notes: Mapping[str, str]) -> dict[str, str]:
        """The notes of a run, with any that follow from these times."""
        if math.isnan(self.used_s):
            hidden = "CPU time of its laps, which this system does not show to its parent"
            return {**notes, "unchecked": hidden}
        if self.idle_s > IDLE * self.rested_s + TICKS_S:
            odd = f"computed for {self.idle_s:.2g} s while others took their turns"
            return {**notes, "odd": "; ".join(filter(None, (notes.get("odd"), odd)))}
        return dict(notes)


def contradiction(samples: Collection[Sample], seen: ObservedTimes) -> str:
    """Why these samples contradict what was seen of their process; empty if they do not.

    Samples by a GPU's clock are not judged: it is not a clock of the parent or its kernel.
    """
    if any(s.device_s is not None for s in samples):
        return ""
    wall_s, cpu_s = sum(s.wall_s for s in samples), sum(s.cpu_s for s in samples)
    if wall_s > seen.waited_s + TICKS_S:
        return f"laps of {wall_s:.3g} s, for which its parent waited {seen.waited_s:.3g} s"
    if cpu_s > (os.cpu_count() or 1) * wall_s + TICKS_S:
        return f"{cpu_s:.3g} s of CPU time in {wall_s:.3g} s, more than all cores have"
    most_s = MOST * cpu_s + LAP_S * len(samples) + TICKS_S
    claims_more, claims_less = cpu_s > seen.used_s + TICKS_S, seen.user_s > most_s
    if claims_more or claims_less:
        counted_s = seen.used_s if claims_more else seen.user_s
        return f"{cpu_s:.3g} s of CPU time in laps, of which the kernel counts {counted_s:.3g} s"
    return ""
