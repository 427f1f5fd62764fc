"""Whether two versions of a mechanism compute the same of one input, with the same parameters."""

import torch
from torch import Tensor, nn

from attnbench.attention.card import Tolerance
from attnbench.measuring.server import Unmeasured
from attnbench.measuring.subject import Subject
from attnbench.records.messages import Compared

# times the card's tolerance: both versions may err as much, and sums are longer than in the checks
# of the contract, for which it is declared
SLACK = 4.0
# times how far a gradient moves where every parameter is rounded: two ways to compute it may be as
# far apart, also where it is 0 but for rounding errors
NOISE = 32.0


def keep(subject: Subject, path: str) -> Compared:
    """Write parameters, output and gradients of one iteration to a file.

    Returns how far they are from those of other random draws.
    """
    state = {name: tensor.clone() for name, tensor in subject.module.state_dict().items()}
    found = computed(subject, seed=1)
    subject.module.load_state_dict({name: rounded(tensor) for name, tensor in state.items()})
    moved = computed(subject, seed=1)
    noise = {name: distance(moved.get(name), tensor) for name, tensor in found.items()}
    torch.save({"state": state, "found": found, "noise": noise}, path)
    subject.module.load_state_dict(state)  # the optimiser has changed them
    _, drawn, _ = error(computed(subject, seed=2), found, 0.0, {})
    return Compared(drawn=drawn)


def rounded(tensor: Tensor) -> Tensor:
    """The tensor with each number moved by up to one unit of its precision, always the same way."""
    if not tensor.is_floating_point():
        return tensor
    draw = torch.Generator().manual_seed(0)
    signs = 2 * torch.rand(tensor.shape, generator=draw) - 1
    return tensor * (1 + torch.finfo(tensor.dtype).eps * signs.to(tensor))


def compare(subject: Subject, tolerance: Tolerance, path: str) -> Compared:
    """The same iteration, with the parameters in the file, against the output and gradients there.

    Returns the largest `error`, what has it, and how large an error is `allowed`.
    Raises `Unmeasured`.
    """
    kept = torch.load(path, map_location=subject.device, weights_only=True)  # noqa: TID251
    try:
        subject.module.load_state_dict(kept["state"])
    except RuntimeError as other:
        raise Unmeasured("failed", "its parameters have other names or shapes") from other
    share = SLACK * getattr(tolerance, subject.case.workload.dtype)
    ours = computed(subject, seed=1)
    what, found, allowed = error(ours, kept["found"], share, kept.get("noise", {}))
    return Compared(what=what, error=found, allowed=allowed)


def computed(subject: Subject, seed: int) -> dict[str, Tensor]:
    """The output of one iteration, with random draws from this seed, and gradients by name.

    Nothing is dropped out.
    """
    for part in subject.module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    subject.prefill()
    torch.manual_seed(seed)
    found = {"the output": subject.iteration()(lambda phase: None).detach()}
    named = {f"input {i}": x for i, x in enumerate(subject.inputs)}
    for name, tensor in {**named, **dict(subject.module.named_parameters())}.items():
        if tensor.grad is not None:
            found[f"the gradient of {name}"] = tensor.grad
    subject.clear()
    return found


def error(
    ours: dict[str, Tensor],
    theirs: dict[str, Tensor],
    share: float,
    noise: dict[str, float],
) -> tuple[str, float, float]:
    """What differs most, how much, and how much is allowed, both relative to its own largest value.

    `share` of that is allowed, and of a gradient `NOISE` times its own noise, but never more than
    `share` of the largest gradient of all. The first of `theirs` is the output.
    """
    output, *gradients = theirs
    sizes = {name: distance(None, tensor) for name, tensor in theirs.items()}
    largest = max((sizes[name] for name in gradients), default=0.0)
    worst = (output, 0.0, share)
    most = -1.0
    for name in {**theirs, **ours}:
        size = sizes.get(name, 0.0) or (sizes[output] if name == output else largest)
        allowed = share * size
        if name != output:
            allowed = min(max(allowed, NOISE * noise.get(name, 0.0)), share * largest)
        differs = distance(ours.get(name), theirs.get(name))
        excess = differs / allowed if allowed else differs / size if size else float(differs > 0)
        if excess > most:
            most = excess
            scale = size or 1.0
            worst = (name, differs / scale, allowed / scale)
    return worst


def distance(ours: Tensor | None, theirs: Tensor | None) -> float:
    """The largest difference of two tensors; one that is missing is all zeros."""
    if ours is None or theirs is None:
        only = ours if theirs is None else theirs
        return 0.0 if only is None else only.abs().max().item()
    return (ours.double().to(theirs.device) - theirs.double()).abs().max().item()
