"""What is known of a mode besides its iteration."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModeFacts:
    """One mode; `place` orders modes in figures and lists.

    It `trains` if an iteration computes gradients. It `steps` if an iteration takes one token of
    each sequence, the last of N, and what a prompt of all tokens before it left; otherwise it
    passes over whole sequences. `alone` is the only level at which it is measured, and `why` says
    so. An iteration does `forwards` times the work of a forward pass, which `work` says; it needs
    `copies` of the parameters, and moves them at least `moves` times.

    In tables, times are headed `time`, with the mode's title and the batch; peaks of memory include
    the parameters and what `peak` adds.
    """

    place: int = 100
    title: str
    both: bool = False  # whether `--mode both` means it
    trains: bool = False
    steps: bool = False
    alone: str = ""
    why: str = ""
    forwards: float = 1.0
    work: str = ""
    copies: int = 1
    moves: int = 1
    time: str = "{title} time, ms per batch of {batch}"
    peak: str = " and inputs"
