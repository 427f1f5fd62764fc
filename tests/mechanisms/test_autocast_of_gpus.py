"""Both passes of every form under the autocast of a GPU, which keeps more in float32 than a CPU's.

There are no numbers and no backward pass without a GPU: here the autocast of the CPU treats
operators as that of CUDA does. What a form does on a GPU alone, such as kernels by Triton, is not
tried.
"""

from functools import partial

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

from attnbench.attention.checks.training import bf16_autocast_works_in_both_modes, keep_types
from attnbench.attention.checks.trial import same_draws, tokens, trials
from attnbench.attention.kernels.autograd import Written
from attnbench.mechanisms.catalogue import registry

# what the autocast of CUDA computes in float32, and that of a CPU in the types of its operands
WIDENED = (
    *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p"),
    *("reciprocal", "rsqrt", "sinh", "tan", "softplus", "layer_norm", "native_layer_norm"),
    *("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "group_norm", "norm.Scalar"),
    *("cosine_similarity", "dist", "renorm", "logsumexp", "softmax.int", "log_softmax.int"),
    *("cumprod", "cumsum", "linalg_vector_norm", "sum", "sum.dim_IntList"),
)
NARROWED = ("addmv", "mv", "addr")
PROMOTED = ("addcmul", "addcdiv", "dot", "index_put", "scatter_add")  # to the widest of the types
CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
OFTEN = ("forgetting-0", "gated_delta_net-0", "latent-0", "longformer-0", "mamba2-0", "reformer-0")
TRIALS = [
    pytest.param(
        trial,
        id=f"{name}-{label}",
        marks=() if f"{name}-{label}".startswith(OFTEN) else pytest.mark.long,
    )
    for name in registry.names()
    for label, trial in trials(registry.card(name))
]


@pytest.fixture(scope="module", autouse=True)
def lists_of_cuda():
    """The autocast of the CPU treats what that of CUDA alone does."""
    library = torch.library.Library("aten", "IMPL")
    for kind, operators in (("wide", WIDENED), ("narrow", NARROWED), ("widest", PROMOTED)):
        for operator in operators:
            if not treats(operator, "CPU"):
                name, _, overload = operator.partition(".")
                call = getattr(getattr(torch.ops.aten, name), overload or "default")
                library.impl(operator, partial(cast_to, kind, call), "AutocastCPU")
    yield
    library._destroy()


def treats(operator, device):
    """Whether the autocast of a device treats an operator."""
    key = f"Autocast{device}"
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{operator}", key)


def cast_to(kind, call, *args, **kwargs):
    """What an operator gives of its operands in the type that autocast chooses."""
    dtypes = [x.dtype for x in tree_leaves((args, kwargs)) if is_cast(x)]
    with torch._C._ExcludeDispatchKeyGuard(CPU):
        if not dtypes:
            return call(*args, **kwargs)
        widest = max(dtypes, key=lambda dtype: dtype.itemsize)
        narrow = torch.get_autocast_dtype("cpu")
        dtype = {"wide": torch.float32, "narrow": narrow, "widest": widest}[kind]
        args, kwargs = tree_map(lambda x: x.to(dtype) if is_cast(x) else x, (args, kwargs))
        return call(*args, **kwargs)


def is_cast(x):
    return isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype != torch.float64


def test_the_lists_are_those_of_cuda():
    for operator in (*WIDENED, *NARROWED, *PROMOTED):
        assert treats(operator, "CUDA"), operator


def test_operators_are_treated_as_on_a_gpu():
    x, y = torch.randn(3, 3), torch.randn(3, 3).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert (x @ y).dtype == torch.bfloat16
        for call in (torch.exp, torch.sum, lambda t: t.softmax(-1), lambda t: t.cumsum(0)):
            assert call(y).dtype == torch.float32
        assert torch.addcmul(y, y, x).dtype == torch.float32
        assert torch.exp(y.double()).dtype == torch.float64
    assert torch.exp(y).dtype == torch.bfloat16


class Careless(Written):
    """w exp x, whose backward pass multiplies what autocast has in two types."""

    lowered = None

    @staticmethod
    def forward(ctx, x, w):
        exps = x.exp()
        ctx.save_for_backward(exps, w)
        with torch.autocast("cpu", torch.bfloat16):
            return w @ exps

    @staticmethod
    def backward(ctx, gradient):
        exps, w = ctx.saved_tensors
        return exps * (w.mT @ gradient), gradient @ exps.mT


def test_a_backward_pass_of_two_types_is_found():
    leaves = [torch.randn(3, 3, requires_grad=True) for _ in "xw"]
    with torch.autocast("cpu", torch.bfloat16):
        y = Careless.apply(*leaves)
    assert y.dtype == torch.bfloat16
    with pytest.raises(RuntimeError, match="same dtype"):
        keep_types(dict(zip("xw", leaves, strict=True)), y)


@pytest.mark.parametrize("trial", TRIALS)
def test_a_form_works_under_the_autocast_of_a_gpu(trial):
    """Its errors are those of bfloat16, and gradients have the types of parameters."""
    bf16_autocast_works_in_both_modes(trial)


@pytest.mark.long
@pytest.mark.parametrize("within", [False, True], ids=["", "within"])
@pytest.mark.parametrize("trial", TRIALS)
def test_a_form_runs_backward_under_the_autocast_of_a_gpu_in_float16(trial, within):
    """Also where the backward pass runs within autocast."""
    w = trial.workload(15)
    module = trial.build(w, torch.float32)
    x = tokens(w, dtype=torch.float32).requires_grad_()
    leaves = {"x": x, **dict(module.named_parameters())}
    with torch.autocast("cpu", torch.float16):
        y = same_draws(module, x)
        if within:
            keep_types(leaves, y)
    keep_types(leaves, y)
