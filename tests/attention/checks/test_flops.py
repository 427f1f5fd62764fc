"""FLOPs as torch counts them, with the products that its counter omits."""

import pytest
import torch
from torch import nn

from attnbench.attention.checks.flops import (
    attention,
    counted_flops,
    triangular_solution,
    weighted_rows,
)
from attnbench.attention.kernels.primitives import fused_attention

B, H, N, d = 2, 3, 7, 4


class Computes(nn.Module):
    """A function of its inputs as a module, with a parameter that it does not use."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.unused = nn.Parameter(torch.ones(1))

    def forward(self, *inputs):
        return self.function(*inputs)


def counted(function, *shapes):
    return counted_flops(Computes(function), *(torch.rand(shape) for shape in shapes))


@pytest.mark.parametrize(
    ("function", "shapes", "flops"),
    [
        (torch.matmul, ((5, 6), (6, 7)), 2 * 5 * 6 * 7),
        (torch.mv, ((5, 6), (6,)), 2 * 5 * 6),
        (torch.dot, ((6,), (6,)), 2 * 6),
        (
            lambda a, b: torch.linalg.solve_triangular(a.tril() + torch.eye(6), b, upper=False),
            ((3, 6, 6), (3, 6, 5)),
            3 * 6 * 6 * 5,
        ),
        (torch.add, ((5, 6), (5, 6)), 0),
    ],
    ids=["product", "matrix and vector", "dot", "triangular", "sum"],
)
def test_products_are_counted_whatever_operator_computes_them(function, shapes, flops):
    assert counted(function, *shapes) == flops


def test_fused_attention_has_two_products_with_every_key():
    found = counted(lambda q, k, v: fused_attention(q, k, v, None), *((B, H, N, d),) * 3)
    assert found == 2 * 2 * B * H * N * N * d


@pytest.mark.parametrize(
    ("causal", "skipping", "pairs"),
    [(False, False, 49), (True, False, 49), (False, True, 49), (True, True, 28)],
)
def test_later_keys_are_left_out_only_by_a_causal_kernel_that_skips(causal, skipping, pairs):
    shape = (B, H, N, d)
    found = attention(shape, shape, shape, 0.0, causal, skipping=skipping)
    assert found == 4 * B * H * d * pairs


def test_queries_meet_keys_of_another_number():
    assert attention((1, 1, 3, d), (1, 1, 5, d), (1, 1, 5, d)) == 4 * d * 15


def test_what_the_counter_omits_is_counted_from_shapes():
    assert triangular_solution((3, 6, 6), (3, 6, 5)) == 3 * 5 * 6 * 6
    assert weighted_rows((100, 8), (20,)) == 2 * 20 * 8


def test_parameters_need_gradients_again_whatever_happens():
    module = Computes(torch.matmul)
    frozen = nn.Parameter(torch.ones(1), requires_grad=False)
    module.frozen = frozen
    counted_flops(module, torch.rand(2, 3), torch.rand(3, 2))
    with pytest.raises(RuntimeError):
        counted_flops(module, torch.rand(2, 3), torch.rand(2, 3))
    assert (module.unused.requires_grad, frozen.requires_grad) == (True, False)


def test_a_method_is_counted_in_place_of_the_module():
    module = Computes(torch.matmul)
    x = torch.rand(2, 3)
    assert counted_flops(module, x, call=lambda x: x @ x.T @ x) == 2 * (2 * 3 * 2 + 2 * 2 * 3)
