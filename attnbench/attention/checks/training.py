"""What any training loop may do with a form, checked from the card alone.

Each check takes a `Trial` and raises `AssertionError` that says what is silently wrong, or what the
form itself raises where it may not. What is worth saying beside "passed" is returned. Gradients are
those of a random weighting of the outputs, in float64 unless stated otherwise.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from attnbench.attention.checks.equations import by_reference, errors, in_float64, values
from attnbench.attention.checks.trial import Trial, core_inputs, same_draws, some_padding, tokens
from attnbench.attention.contract import CoreAttention, Draws
from attnbench.records import Level

LENGTH = 11  # beyond one segment, block and chunk of the first example of most mechanisms
SAME = 1e-9  # of the largest, for what is computed in another order
STEP = 1e-6  # of finite differences of gradients
SECOND = 1e-5  # error of a second derivative by them, relative to the largest

Call = Callable[..., Tensor]


@dataclass(frozen=True)
class TrainedForm:
    """A form, or its core: a call of `leaves` that require gradients, and of a mask or None.

    `inputs`: how many of the leaves are its inputs; the others are parameters.
    """

    call: Call
    leaves: dict[str, Tensor]
    inputs: int
    mask: Tensor | None

    def output(self, *inputs: Tensor) -> Tensor:
        """The output for these inputs, always with the same random draws."""
        return same_draws(self.call, *(inputs or self.tensors), self.mask)

    @property
    def tensors(self) -> list[Tensor]:
        """The inputs, without the parameters."""
        return [*self.leaves.values()][: self.inputs]

    def gradients(self, y: Tensor, **options: Any) -> dict[str, Tensor]:
        """The gradients of a random weighting of the output y, by the names of leaves.

        Zeros where nothing is reached. `options` are further ones of `torch.autograd.grad`.
        """
        leaves = {name: leaf for name, leaf in self.leaves.items() if leaf.requires_grad}
        loss = (y * weights(y)).sum()
        gradients = torch.autograd.grad(loss, [*leaves.values()], allow_unused=True, **options)
        pairs = zip(leaves.items(), gradients, strict=True)
        return {name: torch.zeros_like(x) if g is None else g for (name, x), g in pairs}


def subjects(trial: Trial, masked: bool = False) -> Iterator[TrainedForm]:
    """The form, and its core where there is one, at a short length."""
    w = trial.workload(LENGTH)
    mask = some_padding(w) if masked and not trial.refusal(replace(w, padding=0.3)) else None
    module = trial.build(w)
    leaves = {"x": tokens(w).requires_grad_(), **dict(module.named_parameters())}
    yield TrainedForm(module, leaves, 1, mask)
    at_core = replace(w, level=Level.CORE)
    if trial.refusal(at_core) is None:
        core = trial.build(at_core)
        assert isinstance(core, CoreAttention)
        inputs = [x.requires_grad_() for x in core_inputs(core, w)]
        named = {f"input {n}": x for n, x in enumerate(inputs, 1)}
        yield TrainedForm(core.attend, named | dict(core.named_parameters()), len(inputs), mask)


def weights(y: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(y.shape, generator=generator).bfloat16().to(y.device, y.dtype)


def same(ours: dict[str, Tensor], expected: dict[str, Tensor], label: str) -> None:
    """Raise `AssertionError` where gradients differ by more than another order of sums explains."""
    largest = max((float(g.abs().max()) for g in expected.values() if g.numel()), default=0.0)
    for name, gradient in ours.items():
        error = (gradient - expected[name]).abs().max() if gradient.numel() else torch.zeros(())
        agrees = bool(error <= SAME * (largest or 1.0))
        assert agrees, f"{label}: the gradient of {name} differs by {error:.1e} of {largest:.1e}"


def bf16_autocast_works_in_both_modes(trial: Trial) -> str:
    """Finite, as close to float32 as bfloat16, and gradients in the types of parameters."""
    w = trial.workload(15)
    module = trial.build(w, torch.float32)
    x = tokens(w, dtype=torch.float32).requires_grad_()
    leaves = {"x": x, **dict(module.named_parameters())}
    # it also rounds products of what narrow types keep in float32
    allowed = 3 * trial.allowed(torch.bfloat16)
    device = x.device.type
    expected = None
    drawn = None
    largest = 0.0
    for label, training in (("training", True), ("inference", False)):
        with torch.autocast(device, torch.bfloat16), torch.set_grad_enabled(training):
            y = same_draws(module, x)
        draws = [in_float64(module.draws(index)) for index in range(w.batch)]
        choices = [{name: t.tolist() for name, t in sequence.items()} for sequence in draws]
        if expected is None or choices != drawn:
            drawn = choices
            if trial.card.reference:
                expected = by_reference(trial, module, w, None, draws)
            else:
                expected = values(leaves, same_draws(module, x))
        if training:
            keep_types(leaves, y)
            ours = values(leaves, y.float())
        else:
            ours = ours._replace(output=y.double().cpu())
        for name, error in errors(ours, expected).items():
            assert error <= allowed, f"{label}: {name} errs by {error:.1e}; allowed: {allowed:.1e}"
            largest = max(largest, error)
    return f"works: errs by at most {largest:.1e} of the largest"


def keep_types(leaves: dict[str, Tensor], y: Tensor) -> None:
    """Raise `AssertionError` where a gradient has another type than what it is the gradient of."""
    gradients = torch.autograd.grad(
        y.float().sum(), [*leaves.values()], allow_unused=True, retain_graph=True
    )
    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        kept = gradient is None or gradient.dtype == leaf.dtype
        assert kept, f"the gradient of {name} has another type than it"


def a_second_derivative_is_exact_or_raises(trial: Trial) -> str:
    """Along a random direction, beside other terms of a loss; never wrong, and a number.

    Exact is what the reference gives, or finite differences of gradients.
    """
    subject = next(subjects(trial))
    leaves = [*subject.leaves.values()]
    generator = torch.Generator().manual_seed(5)
    along = [torch.randn(t.shape, generator=generator, dtype=t.dtype).to(t.device) for t in leaves]
    try:
        ours = second(subject.output, leaves, along)
    except (RuntimeError, NotImplementedError) as error:
        return f"raises: {str(error).splitlines()[0]}"
    finite = all(bool(g.isfinite().all()) for g in ours)
    assert finite, "the second derivative is not a number"
    for others in (by_differences, by_equations):
        expected = others(trial, subject, along)
        if expected is not None and apart(ours, expected) <= SECOND:
            return "exact"
    raise AssertionError(
        "not that of its gradients (wrong, or of what is held constant), and nothing says so"
    )


def loss_of(y: Tensor, leaves: Sequence[Tensor]) -> Tensor:
    """With a term beside the module, whose own second derivative hides a missing one."""
    return (y * weights(y)).sum() + (leaves[0] ** 3).sum()


def second(
    call: Callable[[], Tensor], leaves: Sequence[Tensor], along: Sequence[Tensor]
) -> list[Tensor]:
    """The derivative of all gradients along a direction."""
    first = torch.autograd.grad(
        loss_of(call(), leaves), leaves, create_graph=True, allow_unused=True
    )
    pairs = zip(first, along, strict=True)
    moving = [(g * v).sum() for g, v in pairs if g is not None and g.requires_grad]
    total = torch.stack(moving).sum()
    gradients = torch.autograd.grad(total, leaves, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, gradients, strict=True)]


def by_differences(trial: Trial, subject: TrainedForm, along: Sequence[Tensor]) -> list[Tensor]:
    """The derivative of all gradients along a direction, from gradients at two points."""
    leaves = [*subject.leaves.values()]
    ends = []
    for sign in (1, -1):
        moved(leaves, along, sign * STEP)
        loss = loss_of(subject.output(), leaves)
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        ends.append(
            [
                torch.zeros_like(x) if g is None else g
                for x, g in zip(leaves, gradients, strict=True)
            ]
        )
        moved(leaves, along, -sign * STEP)
    return [(a - b) / (2 * STEP) for a, b in zip(*ends, strict=True)]


def moved(leaves: Sequence[Tensor], along: Sequence[Tensor], by: float) -> None:
    with torch.no_grad():
        for leaf, direction in zip(leaves, along, strict=True):
            leaf.add_(direction, alpha=by)


def by_equations(
    trial: Trial, subject: TrainedForm, along: Sequence[Tensor]
) -> list[Tensor] | None:
    """The derivative of all gradients along a direction, by the card's reference.

    None where there is none. It treats values that are held constant as such.
    """
    module = subject.call
    reference = trial.card.reference
    if reference is None:
        return None
    subject.output()
    w = trial.workload(LENGTH)
    exact = trial.build(replace(w, device="cpu"), form="eager")
    exact.load_state_dict(module.state_dict())  # type: ignore[attr-defined]
    draws = [in_float64(module.draws(index)) for index in range(w.batch)]  # type: ignore[attr-defined]
    x = tokens(replace(w, device="cpu")).requires_grad_()
    leaves = [x, *exact.parameters()]
    equations = partial(by_sequence, reference, exact, x, draws)
    return second(equations, leaves, [v.cpu() for v in along])


def by_sequence(reference: Call, module: Any, x: Tensor, draws: Sequence[Draws]) -> Tensor:
    """The reference's outputs of all sequences of x."""
    pairs = zip(x, draws, strict=True)
    return torch.stack([reference(module, tokens, None, drawn) for tokens, drawn in pairs])


def apart(ours: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference, relative to the largest value."""
    largest = max(float(b.abs().max()) for b in expected)
    differences = (
        float((a.cpu() - b.cpu()).abs().max()) for a, b in zip(ours, expected, strict=True)
    )
    return max(differences) / (largest or 1.0)


def a_checkpoint_gives_the_same_gradients(trial: Trial) -> None:
    """`torch.utils.checkpoint` without reentry, which lets saved tensors be read once."""
    for subject in subjects(trial, masked=True):
        expected = subject.gradients(subject.output())
        checkpointed = partial(checkpoint, subject.call, use_reentrant=False)
        y = same_draws(checkpointed, *subject.tensors, subject.mask)
        same(subject.gradients(y), expected, "checkpointed")


def frozen_leaves_change_no_other_gradient(trial: Trial) -> None:
    """Of every second leaf, of the others, of the inputs, and of the parameters."""
    for subject in subjects(trial):
        expected = subject.gradients(subject.output())
        names = [*subject.leaves]
        inputs = names[: subject.inputs]
        alone = [[name] for name in inputs] if subject.inputs > 1 else [inputs]
        for free in (*alone, names[subject.inputs :], names[::2], names[1::2]):
            for name, leaf in subject.leaves.items():
                leaf.requires_grad_(name in free)
            y = subject.output()
            ours = {name: torch.zeros_like(expected[name]) for name in free}
            if y.requires_grad:
                ours = subject.gradients(y)
            same(ours, expected, f"only {', '.join(free)} with gradients")


def a_second_backward_pass_gives_the_same(trial: Trial) -> None:
    """From one graph, which is kept, also with other gradients of the output in between."""
    for subject in subjects(trial, masked=True):
        y = subject.output()
        expected = subject.gradients(y, retain_graph=True)
        leaves = [*subject.leaves.values()]
        torch.autograd.grad(y.sum(), leaves, allow_unused=True, retain_graph=True)
        same(subject.gradients(y), expected, "the second pass")


def strided_and_expanded_tensors_give_the_same(trial: Trial) -> None:
    """Inputs in other orders in memory, with gaps, and repeated without a copy; gradients too."""
    for subject in subjects(trial):
        for view in (transposed, with_gaps, expanded):
            results = []
            for contiguous in (False, True):
                inputs = [view(x) for x in subject.tensors]
                y = subject.output(*(x.contiguous() if contiguous else x for x in inputs))
                results.append((y.detach(), subject.gradients(y)))
            (y, ours), (copied, expected) = results
            same({"the output": y}, {"the output": copied}, view.__name__)
            same(ours, expected, view.__name__)
        y = subject.output()
        repeated = y.new_ones(()).expand_as(y)
        columns = weights(y.mT).mT
        for label, change in (("repeated", repeated), ("columns", columns)):
            ours, expected = (taken(subject, y, g) for g in (change, change.contiguous()))
            same(ours, expected, f"a gradient of the output as {label}")


def taken(subject: TrainedForm, y: Tensor, change: Tensor) -> dict[str, Tensor]:
    """Gradients from that of the output y, of what it reaches."""
    leaves = [*subject.leaves.values()]
    gradients = torch.autograd.grad(y, leaves, change, retain_graph=True, allow_unused=True)
    return {name: g for name, g in zip(subject.leaves, gradients, strict=True) if g is not None}


def transposed(x: Tensor) -> Tensor:
    return x.transpose(-2, 0).contiguous().transpose(-2, 0)


def with_gaps(x: Tensor) -> Tensor:
    return torch.stack([x, x], -1)[..., 0]


def expanded(x: Tensor) -> Tensor:
    return x[:1].expand_as(x)


def what_is_changed_in_place_raises(trial: Trial) -> None:
    """Between the passes: an input, a parameter, a mask; or gradients are those of before."""
    for subject in subjects(trial, masked=True):
        expected = subject.gradients(subject.output())
        changed = {**subject.leaves, **({} if subject.mask is None else {"the mask": subject.mask})}
        for name, tensor in changed.items():
            y = subject.output()
            before = tensor.detach().clone()
            with torch.no_grad():
                tensor.logical_not_() if tensor.dtype == torch.bool else tensor.mul_(-1).add_(0.5)
            try:
                gradients = subject.gradients(y)
            except RuntimeError:
                continue
            finally:
                with torch.no_grad():
                    tensor.copy_(before)
            same(gradients, expected, f"{name} changed in place")
        y = subject.output()
        try:
            twice = subject.gradients(y.mul_(2))
        except RuntimeError:
            continue
        same({n: g / 2 for n, g in twice.items()}, expected, "the output changed in place")


def an_empty_batch_and_one_token_work(trial: Trial) -> None:
    """In both modes: the shape of x, and gradients, which are zero without sequences."""
    for batch, seq_len in ((0, 1), (0, LENGTH), (1, 1), (2, 1)):
        w = trial.workload(seq_len, batch)
        module = trial.build(w)
        x = tokens(w).requires_grad_()
        label = f"B = {batch}, N = {seq_len}"
        with torch.no_grad():
            assert same_draws(module, x).shape == x.shape, f"{label}: another shape"
        y = same_draws(module, x)
        assert y.shape == x.shape, f"{label}: another shape"
        leaves = [x, *module.parameters()]
        for gradient in torch.autograd.grad(y.sum(), leaves, allow_unused=True):
            finite = gradient is None or bool(gradient.isfinite().all())
            assert finite, f"{label}: a gradient is not finite"
            empty = gradient is None or batch > 0 or not gradient.any()
            assert empty, f"{label}: a gradient of no sequences is not zero"


CHECKS = (
    bf16_autocast_works_in_both_modes,
    a_second_derivative_is_exact_or_raises,
    a_checkpoint_gives_the_same_gradients,
    frozen_leaves_change_no_other_gradient,
    a_second_backward_pass_gives_the_same,
    strided_and_expanded_tensors_give_the_same,
    what_is_changed_in_place_raises,
    an_empty_batch_and_one_token_work,
)
