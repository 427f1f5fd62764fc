"""Modules that answer without doing what they are timed for, or leave state behind."""

import torch
from torch import nn


class Honest(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.value = nn.Linear(width, width)
        self.kept = None

    def forward(self, x):
        return x + self.value(x).mean(1, keepdim=True)


class Identity(Honest):
    def forward(self, x):
        return x


class Copies(Honest):
    def forward(self, x):
        return x.clone()


class Zeros(Honest):
    def forward(self, x):
        return torch.zeros_like(x)


class Cached(Honest):
    def forward(self, x):
        if self.kept is None:
            self.kept = super().forward(x).detach()
        return self.kept


class Scales(Honest):
    def forward(self, x):
        y = super().forward(x)
        x.data.mul_(0.999)
        return y


class Records(Honest):
    def forward(self, x):
        with torch.enable_grad():
            return super().forward(x)


class Hides(Honest):
    """Records gradients, and hides it."""

    def forward(self, x):
        with torch.enable_grad():
            return super().forward(x).detach()


class SwitchesOn(Honest):
    def forward(self, x):
        y = super().forward(x)
        torch.set_grad_enabled(True)
        return y


class Freezes(Honest):
    def forward(self, x):
        self.value.weight.requires_grad_(False)
        return super().forward(x)


class Evaluates(Honest):
    def forward(self, x):
        self.train()
        return super().forward(x)


class OnceOnly(Honest):
    """Works on the inputs that it has seen before, and no others."""

    def forward(self, x):
        if self.kept is None:
            self.kept = x.detach().clone()
        if not torch.equal(self.kept, x):
            raise RuntimeError("never seen")
        return super().forward(x)


class Autocasts(Honest):
    """Computes in bfloat16 and returns the type that it was given."""

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = super().forward(x)
        return y.to(x.dtype)


class LeavesAutocastOn(Honest):
    def forward(self, x):
        torch.set_autocast_enabled("cpu", True)
        return super().forward(x)
