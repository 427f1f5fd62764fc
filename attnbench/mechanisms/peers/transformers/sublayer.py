"""What all layers of transformers share."""

from inspect import isfunction, unwrap
from typing import Any

from attnbench.mechanisms.peers import Shared


class Sublayer(Shared):
    package = "transformers"
    release = "5"

    @classmethod
    def imported(cls) -> Any:
        return own(super().imported())


def own(module: Any) -> Any:
    """A module with its own functions in place of kernels of packages that happen to be installed.

    Where flash-linear-attention can be imported, transformers wraps its functions to call that,
    with a GPU or without; what a form measures must not depend on it.
    """
    for name, value in list(vars(module).items()):
        if isfunction(value):
            setattr(module, name, unwrap(value))
    return module
