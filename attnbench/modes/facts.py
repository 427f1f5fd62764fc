"""The facts of a mode, apart from the code of its iteration."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModeFacts:
    """One mode; `order` is its place in figures and lists.

    `trains`: an iteration computes gradients. `steps`: an iteration takes one token of each
    sequence, the last of N, and the state that a prompt of all tokens before it left; otherwise it
    passes over whole sequences. `only_level`: the only level at which the mode is measured, and
    `only_level_reason`: why. An iteration does `forward_passes` times the FLOPs of a forward pass,
    as `work` says in words; it needs `copies` of the parameters, and moves them at least
    `parameter_moves` times.

    In tables, times are headed `time`, with the mode's title and the batch; memory peaks include
    the parameters and what `peak` adds.
    """

    order: int = 100
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
