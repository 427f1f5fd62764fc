"""The account of a core, and what a lap may have of page faults."""

from attnbench.devices.disturbances import CoreMeter
from attnbench.devices.timing import FAULT_S


class Core:
    """A core with an account that a test changes."""

    def __init__(self):
        self.now = 0.0, 0, 0.0
        self.meter = CoreMeter(lambda: self.now)


MANY = round(0.011 * 0.1 / FAULT_S)
