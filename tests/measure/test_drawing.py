"""Random numbers of large tensors, of which only the first are drawn."""

import torch
from torch import nn

from attnbench.measure.drawing import DRAWN, Repeating, draw


def drawn(*sizes, repeating=True):
    torch.manual_seed(0)
    if not repeating:
        return nn.Linear(*sizes)
    with Repeating():
        return nn.Linear(*sizes)


def test_large_parameters_repeat_numbers_that_are_spread_as_all_would_be():
    layer, usual = drawn(2048, 1300), drawn(2048, 1300, repeating=False)
    first, second, rest = layer.weight.flatten().split(DRAWN)
    assert torch.equal(first, second)
    assert torch.equal(first[: len(rest)], rest)
    assert torch.equal(first, usual.weight.flatten()[:DRAWN])
    assert layer.weight.requires_grad
    assert not torch.equal(layer.weight[0], layer.weight[1])


def test_other_parameters_are_as_torch_draws_them():
    layer, usual = drawn(64, 32), drawn(64, 32, repeating=False)
    assert torch.equal(layer.weight, usual.weight)
    assert torch.equal(layer.bias, usual.bias)


def test_what_is_not_contiguous_is_drawn_in_full():
    part = torch.zeros(2, DRAWN).T
    draw(part, lambda first: first.fill_(1.0))
    assert part.min() == 1
