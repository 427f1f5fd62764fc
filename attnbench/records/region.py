"""The parts of a module among which the time of an iteration is divided."""

from enum import StrEnum


class Region(StrEnum):
    """A part of a module, or something outside its parts that takes time."""

    CORE = "core"
    PROJECTIONS = "projections"
    CONVOLUTION = "convolution"
    GATES = "gates and norms"  # and copies
    SHELL = "shell"
    OPTIMISER = "optimiser"
    LAUNCHES = "launches"  # of operators, wherever they are
    REST = "rest"  # time of the unmarked module that the parts of the marked one do not cover
