"""Whether two versions of a mechanism compute the same of one input, with the same parameters."""

import torch
from torch import Tensor, nn

from attnbench.attention import Tolerance
from attnbench.measuring.server import Unmeasured
from attnbench.measuring.subject import Subject
from attnbench.records import messages

# times the card's tolerance: both versions may err as much, and sums are longer than in the checks
# of the contract, for which it is declared
SLACK = 4.0
# times how far a gradient moves where every parameter is rounded: two ways to compute it may be as
# far apart, also where it is 0 but for rounding errors
NOISE = 32.0


def keep(subject: Subject, path: str) -> messages.Compared:
    """Write parameters, output and gradients of one iteration to a file.

    Returns how far they are from those of other random draws.
    """
    state = {name: tensor.clone() for name, tensor in subject.module.state_dict().items()}
    results = output_and_gradients(subject, seed=1)
    subject.module.load_state_dict(
        {name: with_rounding_noise(tensor) for name, tensor in state.items()}
    )
    moved_results = output_and_gradients(subject, seed=1)
    noise = {name: distance(moved_results.get(name), tensor) for name, tensor in results.items()}
    torch.save({"state": state, "found": results, "noise": noise}, path)
    subject.module.load_state_dict(state)  # the optimiser has changed them
    _, drawn_error, _ = largest_error(output_and_gradients(subject, seed=2), results, 0.0, {})
    return messages.Compared(drawn=drawn_error)


def with_rounding_noise(tensor: Tensor) -> Tensor:
    """The tensor with each number moved by up to one unit of its precision, always the same way."""
    if not tensor.is_floating_point():
        return tensor
    draw = torch.Generator().manual_seed(0)
    signs = 2 * torch.rand(tensor.shape, generator=draw) - 1
    return tensor * (1 + torch.finfo(tensor.dtype).eps * signs.to(tensor))


def compare(subject: Subject, tolerance: Tolerance, path: str) -> messages.Compared:
    """The same iteration, with the parameters in the file, against the output and gradients there.

    Returns the largest `error`, what has it, and how large an error is `allowed`.
    Raises `Unmeasured`.
    """
    base = torch.load(path, map_location=subject.device, weights_only=True)  # noqa: TID251
    try:
        subject.module.load_state_dict(base["state"])
    except RuntimeError as mismatch:
        raise Unmeasured("failed", "its parameters have other names or shapes") from mismatch
    share = SLACK * getattr(tolerance, subject.case.workload.dtype)
    results = output_and_gradients(subject, seed=1)
    place, size, allowed = largest_error(results, base["found"], share, base.get("noise", {}))
    return messages.Compared(what=place, error=size, allowed=allowed)


def output_and_gradients(subject: Subject, seed: int) -> dict[str, Tensor]:
    """The output of one iteration, with random draws from this seed, and gradients by name.

    Nothing is dropped out.
    """
    for part in subject.module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    subject.prefill()
    torch.manual_seed(seed)
    results = {"the output": subject.iteration()(lambda phase: None).detach()}
    inputs = {f"input {i}": x for i, x in enumerate(subject.inputs)}
    for name, tensor in {**inputs, **dict(subject.module.named_parameters())}.items():
        if tensor.grad is not None:
            results[f"the gradient of {name}"] = tensor.grad
    subject.clear()
    return results


def largest_error(
    head: dict[str, Tensor],
    base: dict[str, Tensor],
    share: float,
    noise: dict[str, float],
) -> tuple[str, float, float]:
    """What differs most, how much, and how much is allowed, both relative to its own largest value.

    `share` of that is allowed, and of a gradient `NOISE` times its own noise, but never more than
    `share` of the largest gradient of all.

    head:  output and gradients of this side, by name
    base:  those of the other side, the output first
    share: of its own largest value by which each may differ
    noise: how far a gradient moves where parameters are rounded, by its name
    """
    output, *gradients = base
    sizes = {name: distance(None, tensor) for name, tensor in base.items()}
    largest = max((sizes[name] for name in gradients), default=0.0)
    worst = (output, 0.0, share)
    most = -1.0
    for name in {**base, **head}:
        size = sizes.get(name, 0.0) or (sizes[output] if name == output else largest)
        allowed = share * size
        if name != output:
            allowed = min(max(allowed, NOISE * noise.get(name, 0.0)), share * largest)
        differs = distance(head.get(name), base.get(name))
        excess = differs / allowed if allowed else differs / size if size else float(differs > 0)
        if excess > most:
            most = excess
            scale = size or 1.0
            worst = (name, differs / scale, allowed / scale)
    return worst


def distance(a: Tensor | None, b: Tensor | None) -> float:
    """The largest difference of two tensors; one that is missing is all zeros."""
    if a is None or b is None:
        tensor = a if b is None else b
        return 0.0 if tensor is None else tensor.abs().max().item()
    return (a.double().to(b.device) - b.double()).abs().max().item()
