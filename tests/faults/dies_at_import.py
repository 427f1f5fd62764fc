"""A module that can be read where a sweep is planned, and ends each process that would measure."""

import multiprocessing
import os

from tests.faults.odd_mechanisms import Well

if multiprocessing.parent_process() is not None:
    print("no way", flush=True)
    os._exit(7)


class Dies(Well):
    pass
