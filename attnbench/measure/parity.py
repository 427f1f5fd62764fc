"""Whether two versions of a mechanism compute the same of one input, with the same parameters."""

from typing import Any

import torch
from torch import Tensor, nn

from attnbench.attention.card import Tolerance
from attnbench.measure.server import Unmeasured
from attnbench.measure.subject import Subject

# times the card's tolerance: both versions may err as much, and sums are longer than in the checks
# of the contract, for which it is declared
SLACK = 4.0


def keep(subject: Subject, path: str) -> dict[str, float]:
    """Write parameters, output and gradients of one iteration to a file.

    Returns how far they are from those of other random draws.
    """
    state = {name: tensor.clone() for name, tensor in subject.module.state_dict().items()}
    found = computed(subject, seed=1)
    torch.save({"state": state, "found": found}, path)
    subject.module.load_state_dict(state)  # the optimiser has changed them
    _, drawn = error(computed(subject, seed=2), found)
    return {"drawn": drawn}


def compare(subject: Subject, tolerance: Tolerance, path: str) -> dict[str, Any]:
    """The same iteration, with the parameters in the file, against the output and gradients there.

    Returns the largest `error`, what has it, and how large an error is `allowed`.
    Raises `Unmeasured`.
    """
    kept = torch.load(path, map_location=subject.device, weights_only=True)  # noqa: TID251
    try:
        subject.module.load_state_dict(kept["state"])
    except RuntimeError as other:
        raise Unmeasured("failed", "its parameters have other names or shapes") from other
    what, found = error(computed(subject, seed=1), kept["found"])
    dtype = subject.case.workload.dtype
    return {"what": what, "error": found, "allowed": SLACK * getattr(tolerance, dtype)}


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


def error(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> tuple[str, float]:
    """What differs most, and how much, relative to the largest output or gradient."""
    output, *gradients = theirs
    largest = max((theirs[name].abs().max().item() for name in gradients), default=0.0)
    errors = {}
    for name in {**theirs, **ours}:
        a, b = (values.get(name, torch.zeros(())).double() for values in (ours, theirs))
        scale = theirs[output].abs().max().item() if name == output else largest
        difference = (a.to(b.device) - b).abs().max().item()
        errors[name] = difference / scale if scale else float(difference > 0)
    what = max(errors, key=lambda name: errors[name])
    return what, errors[what]
