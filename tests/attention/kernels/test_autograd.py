"""What a backward pass written by hand gets from its base, whatever its author forgets."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from attnbench.attention.kernels.autograd import Written, lowered


class Tangent(Written):
    """tanh x · y; keeps what it computed, and reads what was saved twice."""

    @staticmethod
    def forward(ctx, x, y, scale=1.0):
        t = x.tanh()
        ctx.save_for_backward(t, y)
        ctx.scale = scale
        return scale * t * y

    @staticmethod
    def backward(ctx, gradient):
        t, y = ctx.saved_tensors
        return (
            ctx.scale * gradient * (1 - t**2) * y,
            ctx.scale * gradient * ctx.saved_tensors[0],
            None,
        )


class Lowered(Tangent):
    lowered = True


class Kept(Tangent):
    lowered = None


def leaves(dtype=torch.float64):
    torch.manual_seed(0)
    return [torch.randn(5, dtype=dtype, requires_grad=True) for _ in "xy"]


def test_gradients_are_those_that_were_written():
    assert torch.autograd.gradcheck(Tangent.apply, (*leaves(), 3.0))


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("whole", [False, True], ids=["grad", "backward"])
def test_a_second_derivative_raises_by_whatever_it_is_taken(which, whole):
    """Also by an input that was not kept, and where a term beside it has a derivative."""
    inputs = leaves()
    y = Tangent.apply(*(2 * t for t in inputs)).sum() + sum((t**3).sum() for t in inputs)
    (first,) = torch.autograd.grad(y, inputs[which], create_graph=True)
    total = first.sum()
    again = total.backward if whole else lambda: torch.autograd.grad(total, inputs[which])
    with pytest.raises(RuntimeError, match="cannot be differentiated"):
        again()


def test_a_first_derivative_with_a_graph_is_what_it_is_without():
    inputs = leaves()
    pairs = (
        torch.autograd.grad(Tangent.apply(*inputs).sum(), inputs, create_graph=graph)
        for graph in (False, True)
    )
    for a, b in zip(*pairs, strict=True):
        assert a.equal(b)


def test_tensors_may_be_read_once_alone():
    inputs = leaves()
    expected = torch.autograd.grad(Tangent.apply(*inputs).sum(), inputs)
    again = torch.autograd.grad(
        checkpoint(Tangent.apply, *inputs, use_reentrant=False).sum(), inputs
    )
    assert all(a.equal(b) for a, b in zip(again, expected, strict=True))


def test_what_was_saved_and_changed_raises():
    x, y = leaves()
    z = Tangent.apply(x, y)
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


@pytest.mark.parametrize(
    ("function", "expected"),
    [(Tangent, torch.float32), (Lowered, torch.bfloat16), (Kept, torch.float32)],
)
@pytest.mark.parametrize("within", [False, True])
def test_under_autocast_all_has_one_type(function, expected, within):
    x, y = leaves(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        z = function.apply(x, y.bfloat16() if function is not Kept else y)
        assert z.dtype == expected
        if within:
            z.float().sum().backward()
    if not within:
        z.float().sum().backward()
    assert x.grad.dtype == y.grad.dtype == torch.float32
    torch.testing.assert_close(y.grad, x.detach().tanh(), rtol=0.02, atol=0.02)


def test_float64_stays_under_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        assert Lowered.apply(*leaves()).dtype == torch.float64


def test_a_plain_function_can_have_one_type_too():
    @lowered
    def product(x, y):
        out = x.new_empty(len(x), len(x))
        return torch.matmul(x[:, None], y[None], out=out)

    with torch.autocast("cpu", torch.bfloat16):
        x, y = (t.detach() for t in leaves(torch.float32))
        assert product(x, y.bfloat16()).dtype == torch.bfloat16
    assert product(x, y).dtype == torch.float32
