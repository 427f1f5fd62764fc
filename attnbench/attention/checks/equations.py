"""Whether a mechanism computes its equations, in every number type in which it is timed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, isnan
from typing import NamedTuple

import torch
from torch import Tensor

from attnbench.attention.checks.trial import Trial, in_dtype, same_draws, some_padding, tokens
from attnbench.attention.contract import Attention, Draws
from attnbench.records import Workload

NUMBER_TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def computes_its_own_equations(trial: Trial, types: Sequence[torch.dtype] = NUMBER_TYPES) -> None:
    """Outputs and gradients against the card's reference in float64, within its tolerance."""
    for seq_len, masked in ((1, False), (2, True), (17, False), (40, True)):
        against_its_reference(trial, seq_len, masked, types)


class Values(NamedTuple):
    """What one evaluation gives: its outputs at real tokens, and gradients by name, in float64."""

    output: Tensor
    gradients: dict[str, Tensor]


def against_its_reference(
    trial: Trial,
    seq_len: int,
    masked: bool,
    types: Sequence[torch.dtype] = NUMBER_TYPES,
    slack: float = 1.0,
) -> None:
    """Compare with the reference in float64 on a CPU. Raises `AssertionError` where they differ.

    trial: the mechanism in one form.
    seq_len: N.
    masked: whether sequences have padding.
    types: number types; those that the form refuses are left out.
    slack: times the tolerances of the card that are allowed.
    """
    w = trial.workload(seq_len)
    mask = some_padding(w) if masked else None
    expected = None
    last = None
    for dtype in types:
        if trial.refusal(in_dtype(w, dtype)):
            continue
        module = trial.build(in_dtype(w, dtype), dtype)
        x = tokens(w, dtype=dtype).requires_grad_()
        leaves = {"x": x, **dict(module.named_parameters())}
        ours = values(leaves, same_draws(module, x, mask), mask)
        draws = [in_float64(module.draws(index)) for index in range(w.batch)]
        drawn = [{name: t.tolist() for name, t in sequence.items()} for sequence in draws]
        if expected is None or drawn != last:  # tokens and parameters are those of every type
            expected = by_reference(trial, module, w, mask, draws)
            last = drawn
        setting = f"{dtype}, N = {seq_len}, {'padded' if masked else 'not padded'}"
        compare(ours, expected, slack * trial.allowed(dtype), setting)


def by_reference(
    trial: Trial, module: Attention, w: Workload, mask: Tensor | None, draws: Sequence[Draws]
) -> Values:
    """The values of the reference with the module's parameters, in float64 on a CPU.

    trial: the mechanism, which has a reference.
    module: one of its forms, whose parameters count.
    w: the workload; its device and number type do not count.
    mask: [B, N], True for real tokens; None: all are.
    draws: the random draws of each sequence.
    """
    reference = trial.card.reference
    w = replace(w, device="cpu", dtype="float64")
    assert reference is not None, "checked only where there is one"
    exact = trial.build(w, form="eager")  # whose parameters are those of all forms
    exact.load_state_dict(module.state_dict())
    x = tokens(w).requires_grad_()
    mask = None if mask is None else mask.cpu()
    masks = [None] * w.batch if mask is None else mask
    rows = zip(x, masks, draws, strict=True)
    y = torch.stack([reference(exact, *row) for row in rows])
    return values({"x": x, **dict(exact.named_parameters())}, y, mask)


def values(leaves: Mapping[str, Tensor], y: Tensor, mask: Tensor | None = None) -> Values:
    """The output y, and the gradients by these leaves of a random weighting of its real tokens.

    Those on which y does not depend have none.
    """
    generator = torch.Generator().manual_seed(3)
    weights = torch.randn(y.shape, generator=generator).bfloat16().to(y.device, y.dtype)
    if mask is not None:
        y = y[mask]
        weights = weights[mask]
    raw = torch.autograd.grad((y * weights).sum(), [*leaves.values()], allow_unused=True)
    gradients = {
        name: gradient.double().cpu()
        for name, gradient in zip(leaves, raw, strict=True)
        if gradient is not None
    }
    return Values(y.detach().double().cpu(), gradients)


def compare(ours: Values, expected: Values, allowed: float, setting: str) -> None:
    """Raise `AssertionError` where an error exceeds what is allowed, or is not a number.

    ours: of the form.
    expected: of the reference.
    allowed: the largest error, relative as in `errors`.
    setting: in words, for the message.
    """
    for name, error in errors(ours, expected).items():
        assert error <= allowed, f"{setting}: error of {name}: {error:.2g}; allowed: {allowed:.2g}"


def errors(ours: Values, expected: Values) -> dict[str, float]:
    """The largest error of the output, and of each gradient as `dx`; inf if it is not a number.

    Relative to the largest output, or to the largest of all gradients. A gradient that is missing
    is zero. Raises `ValueError` where the output has another shape.
    """
    if ours.output.shape != expected.output.shape:
        shapes = (list(values.output.shape) for values in (ours, expected))
        raise ValueError("the output has shape {}, not {}".format(*shapes))
    zero = torch.zeros(())
    largest = max((gradient.abs().max() for gradient in expected.gradients.values()), default=zero)
    by_name = {"output": relative(ours.output, expected.output, expected.output.abs().max())}
    for name in {**expected.gradients, **ours.gradients}:
        a, b = (values.gradients.get(name, zero) for values in (ours, expected))
        by_name[f"d{name}"] = relative(a, b, largest)
    return by_name


def relative(a: Tensor, b: Tensor, scale: Tensor) -> float:
    """The largest difference of two tensors in units of `scale`, or of 1 where that is zero."""
    error = float((a - b).abs().max() / (scale or 1.0))
    return inf if isnan(error) else error


def in_float64(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on a CPU, real numbers in float64."""
    taken = {name: t.detach().cpu() for name, t in tensors.items()}
    return {name: t.double() if t.is_floating_point() else t for name, t in taken.items()}
