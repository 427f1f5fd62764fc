"""Whether two outputs differ by more than rounding."""

import torch
from torch import Tensor

# Outputs differ if more than this share of the numbers of a sequence do: where rounding chooses
# among almost equal tokens, a few of them differ.
SHARE = 0.1
# Numbers differ if by more than this share of their usual size, or by `STEPS` of the type;
# `GROSS` is more than the state of a mechanism changes within a lap.
TOLERANCE = 1e-4
STEPS = 4
GROSS = 0.5


def differs(output: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Whether more differs than rounding explains, in all numbers or in one sequence [B, …]."""
    if output.shape != expected.shape:
        return True
    usual = expected.float().square().mean().sqrt()
    limit = max(tolerance, STEPS * torch.finfo(expected.dtype).eps) * usual
    outliers = ~((output.float() - expected.float()).abs() <= limit)
    shares = outliers.double().reshape(len(outliers) if outliers.dim() > 1 else 1, -1).mean(1)
    return bool((shares > SHARE).any())
