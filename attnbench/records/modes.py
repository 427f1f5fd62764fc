"""The modes of a measurement: the facts that planning, predictions, tables and figures need.

A mode is a row here, and a class in `measuring/subject.py` with the code of its iteration.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from types import MappingProxyType

# what looking for odd behaviour in a case takes of a usual module that works on one sequence: so
# many calls of its forward pass alone, and iterations
EXAMINED_CALLS = 44
EXAMINED_ITERATIONS = 6


@dataclass(frozen=True, kw_only=True)
class ModeFacts:
    """One mode, apart from the code of its iteration.

    `trains`: an iteration computes gradients. `steps`: an iteration takes the last of N tokens of
    each sequence, or `--step` of them, and the state that a prompt of all tokens before left;
    otherwise it passes over whole sequences. `only_level`: the only level at which the mode is
    measured, and `only_level_reason`: why. An iteration does `forward_passes` times the FLOPs of a
    forward pass, as `work` says in words; it needs `copies` of the parameters, and moves them at
    least `parameter_moves` times.

    In tables, times are headed `time`, with the mode's title, the batch and what a step computes;
    memory peaks include the parameters and what `peak` adds.
    """

    title: str
    both: bool = False  # whether `--mode both` means it
    trains: bool = False
    steps: bool = False
    only_level: str = ""
    only_level_reason: str = ""
    forward_passes: float = 1.0
    work: str = ""
    copies: int = 1
    parameter_moves: int = 1
    time: str = "{title} time, ms per batch of {batch}"
    peak: str = " and inputs"

    @property
    def examined_iterations(self) -> int:
        """How many iterations take as long as looking for odd behaviour in a case."""
        return EXAMINED_ITERATIONS + ceil(EXAMINED_CALLS / self.forward_passes)


# in the order of figures and lists
MODES: Mapping[str, ModeFacts] = MappingProxyType({
    # forward, loss, backward and a step of Adam
    "training": ModeFacts(
        title="Training",
        both=True,
        trains=True,
        forward_passes=3.0,  # each product has two in the backward pass
        work="Training counts three times the FLOPs of the forward pass.",
        copies=4,  # parameters, gradients and Adam's two moments
        parameter_moves=6,  # parameters and both moments, each read and written
        peak=", inputs, gradients and optimiser state",
    ),
    # a forward pass without gradients
    "inference": ModeFacts(title="Inference", both=True),
    # the output of token N, or of the last ones, from the state that those before left
    "decode": ModeFacts(
        title="Decode",
        steps=True,
        only_level="attention",
        only_level_reason="a step is measured with its projections and without a classifier",
        time="Time per {step}, context of N tokens, ms",
        peak=", the prompt and its prefill, and the state",
    ),
})  # fmt: skip


def find(name: str) -> ModeFacts:
    """The facts of a mode. Raises `ValueError`."""
    if name not in MODES:
        raise ValueError(f"{name!r} is not a mode; modes: {', '.join(MODES)}")
    return MODES[name]


class Mode(StrEnum):
    """The name of a mode."""

    locals().update({name.upper(): name for name in MODES})


USUAL = Mode("inference")
BOTH = tuple(mode for mode in Mode if find(mode).both)  # those of `--mode both`
PASSES = tuple(mode for mode in Mode if not find(mode).steps)  # over whole sequences
