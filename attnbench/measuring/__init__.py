"""The child: the server that forks measuring processes, and the code that runs in them.

What other wings use of it, imported when it is first asked for:

    Answering, TorchState, Unmeasured    for a verb that has a worker of its own
    allocator                            how such a worker keeps or returns memory
    pytest_run, pytest_worker            for the plug-in of pytest, which loads no torch

What is behind the door; questions and answers are records in `records/messages.py`:

    server, worker, calls                what forks, and workers for mechanisms and for functions
    reader, planner, cards               from cards to the cases of a request
    subject, inputs, built               a case, its inputs, and its laps
    memory_and_counts, energy            what else is measured of it; whether gradients are finite
    oddities, responses, gradients       signs that a mechanism does not compute what it should
    causality, noise                     whether it sees later tokens, and what random numbers hide
    parity, results                      whether two versions compute the same
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnbench.measuring.answering import Answering as Answering
    from attnbench.measuring.server import Unmeasured as Unmeasured
    from attnbench.measuring.torch_state import TorchState as TorchState

__all__ = (
    "Answering",
    "TorchState",
    "Unmeasured",
    "allocator",
    "pytest_run",
    "pytest_worker",
)


def __getattr__(name: str) -> object:
    """Import a class from its module on first access."""
    if name == "Answering":
        from attnbench.measuring.answering import Answering

        return Answering
    if name == "TorchState":
        from attnbench.measuring.torch_state import TorchState

        return TorchState
    if name == "Unmeasured":
        from attnbench.measuring.server import Unmeasured

        return Unmeasured
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
