"""The parts of a module among which the time of an iteration is divided."""

from enum import StrEnum


class Region(StrEnum):
    """A part of a module, or what is no part of it but takes time."""

    CORE = "core"
    PROJECTIONS = "projections"
    CONVOLUTION = "convolution"
    GATES = "gates and norms"  # and copies
    SHELL = "shell"
    OPTIMISER = "optimiser"
    LAUNCHES = "launches"  # of operators, wherever they are
    REST = "rest"  # what the parts of a marked module lack of the time of the module as it is
