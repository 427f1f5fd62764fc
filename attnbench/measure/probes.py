"""A fixed piece of work, repeated beside measured work on a core to tell the core's speed."""

import os
import threading
import time
from collections import deque

import torch

EVERY_S = 0.025
SIZE = 256  # rows of the matrices, whose product takes about half a millisecond
MOST = 1 << 16  # probes kept that have not been read


class Probes:
    """CPU seconds of each probe of a core, taken by a thread until the process ends."""

    def __init__(self, core: int) -> None:
        os.sched_setaffinity(0, {core})
        self.found: deque[float] = deque(maxlen=MOST)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        """Probe the core again and again."""
        a = torch.full((SIZE, SIZE), 1 / SIZE)
        out = torch.empty_like(a)
        while True:
            time.sleep(EVERY_S)
            torch.mm(a, a, out=out)  # others have used the caches
            begun = time.thread_time()
            torch.mm(a, a, out=out)
            self.found.append(time.thread_time() - begun)

    def taken(self) -> list[float]:
        """Those since this was last called."""
        return [self.found.popleft() for _ in range(len(self.found))]
