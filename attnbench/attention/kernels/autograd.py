"""What every backward pass written by hand is to autograd: a good citizen of any training loop.

`Written` is the base of all `torch.autograd.Function`s of this package. A subclass writes `forward`
and `backward` as usual, and gets

    autocast            both passes run with autocast off and all inputs in one type
    second derivatives  raise, unless the subclass says that its backward pass can be differentiated
    saved tensors       read once in a backward pass, as checkpoints allow

Tensors that the backward pass reads and others can reach are to be kept by `save_for_backward`,
which raises where they were changed in place.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

P = ParamSpec("P")
R = TypeVar("R")

TWICE = b"the backward pass of this form cannot be differentiated; another form may have a second"


class Written(torch.autograd.Function):
    """A function whose backward pass is written by hand.

    `lowered`: whether autocast computes it in its own type, as it does products and attention;
    else in float32, as it does norms and sums; None: inputs keep their types. `twice`: whether the
    backward pass, where gradients are enabled, is made of operations that can be differentiated
    again and lead to the inputs.
    """

    lowered: ClassVar[bool | None] = False
    twice: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "backward" in vars(cls):
            cls.backward = staticmethod(guarded(cls.backward, cls.twice))  # type: ignore[method-assign]
        if "forward" in vars(cls) and not cls.twice:
            cls.forward = staticmethod(tied(cls.forward))  # type: ignore[method-assign]

    @classmethod
    def apply(cls, *inputs: Any) -> Any:
        found = in_one_type(super().apply, cls.lowered, *inputs)
        if cls.twice or torch.compiler.is_compiling():
            return found
        *outputs, _ = found
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


class Context:
    """What a backward pass sees of its node: saved tensors, read once, and other attributes."""

    def __init__(self, node: Any, saved: Sequence[Tensor]) -> None:
        self.node = node
        self.saved_tensors = saved

    def __getattr__(self, name: str) -> Any:
        return getattr(self.node, name)


def tied(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward pass with one more output, which is empty, and kept for the backward pass.

    There it leads to all inputs, whatever else is kept: what is made to depend on it is on the way
    to whatever a second derivative is taken by.
    """

    @functools.wraps(forward)
    def tying(ctx: Any, *inputs: Any) -> Any:
        found = forward(ctx, *inputs)
        if torch.compiler.is_compiling():
            return found
        outputs = found if isinstance(found, tuple) else (found,)
        tie = outputs[0].new_empty(0)
        ctx.to_save = (*(getattr(ctx, "to_save", None) or ()), tie)
        return *outputs, tie

    return tying


def guarded(backward: Callable[..., Any], twice: bool) -> Callable[..., Any]:
    """A backward pass as `Written` promises it."""

    @functools.wraps(backward)
    def guard(ctx: Any, *gradients: Tensor | None) -> Any:
        if torch.compiler.is_compiling():  # which refuses second derivatives itself
            return backward(ctx, *gradients)
        saved = ctx.saved_tensors
        if twice:
            return in_one_type(backward, None, Context(ctx, saved), *gradients)
        *saved, tie = saved
        with torch.no_grad():
            found = in_one_type(backward, None, Context(ctx, saved), *gradients[:-1])
        return once(found, tie) if torch.is_grad_enabled() else found

    return guard


def once(found: Any, tie: Tensor) -> Any:
    """Gradients that raise where they are differentiated by whatever `tie` leads to."""
    several = found if isinstance(found, tuple) else (found,)
    error: Any = torch._C._functions.DelayedError(TWICE, len(several) + 1)
    *raising, _ = error(*(None if x is None else x.detach() for x in several), tie)
    return tuple(raising) if isinstance(found, tuple) else raising[0]


class Once(Written):
    """x itself, through which no second derivative is taken: that of torch is not a number."""

    lowered = None

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def differentiated(
    call: Callable[..., Tensor], inputs: Sequence[Tensor], gradient: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients of call(*inputs) that can be differentiated again; None for constant inputs."""
    with torch.enable_grad():
        # one input may have been computed from another, whose gradient would then count it too
        own = [x.view_as(x) for x in inputs]
        y = call(*own)
    wanted = [x for x in own if x.requires_grad]
    found = iter(torch.autograd.grad(y, wanted, gradient, create_graph=True, allow_unused=True))
    return tuple(next(found) if x.requires_grad else None for x in own)


def recomputed(call: Callable[..., R], *inputs: Any) -> R:
    """call(*inputs), which draws nothing; results within are computed again for the gradient.

    The states of random generators are not kept: that takes time, and a CUDA graph cannot do it.
    """
    if not torch.is_grad_enabled():
        return call(*inputs)
    result: R = checkpoint(call, *inputs, use_reentrant=False, preserve_rng_state=False)
    return result


def in_one_type(call: Callable[P, R], lowered: bool | None, *inputs: Any) -> R:
    """call(*inputs), under autocast with it off and all real inputs but float64 in one type.

    That is autocast's own type if `lowered`, else float32; None: inputs keep their types.
    """
    device = next((x.device.type for x in inputs if isinstance(x, Tensor)), "cpu")
    if not torch.is_autocast_enabled(device):
        return call(*inputs)  # type: ignore[call-arg]
    with torch.autocast(device, enabled=False):
        if lowered is None:
            return call(*inputs)  # type: ignore[call-arg]
        dtype = torch.get_autocast_dtype(device) if lowered else torch.float32
        return call(*(cast(x, dtype) for x in inputs))  # type: ignore[call-arg]


def lowered(call: Callable[P, R]) -> Callable[P, R]:
    """A function of positional inputs that autocast computes wholly in its own type.

    As what writes into tensors has to be: autocast gives their operands a type of its own.
    """
    return typed(call, True)


def widened(call: Callable[P, R]) -> Callable[P, R]:
    """A function of positional inputs that autocast computes wholly in float32, as states are."""
    return typed(call, False)


def typed(call: Callable[P, R], lowered: bool) -> Callable[P, R]:
    """A function that `in_one_type` calls."""

    @functools.wraps(call)
    def called(*inputs: Any) -> Any:
        return in_one_type(call, lowered, *inputs)

    return called  # type: ignore[return-value]


def cast(x: Any, dtype: torch.dtype) -> Any:
    """A tensor of real numbers in a type, where it is not float64; anything else as it is."""
    changes = isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64
    return x.to(dtype) if changes else x
