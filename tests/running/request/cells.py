"""A module that is given as a class."""

from torch import nn


class Mean(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.value = nn.Linear(width, width)

    def forward(self, x):
        return x + self.value(x).mean(1, keepdim=True)
