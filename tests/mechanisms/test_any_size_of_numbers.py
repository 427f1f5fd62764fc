"""Every form on inputs of every size: finite, and as right in float32 as `eager` is.

Errors are those from `eager` in float64. A form may err four times as much as `eager` in float32
and as one rounding of tokens, parameters, logits and their gradients together. Logits are rounded
apart from their inputs, since products of equal keys may be summed in different orders: where two
keys are equal and their values are not, as pooled ones that overlap, one digit of a logit of 10⁵
moves the output by 5 · 10⁻⁴. Torch's fused kernels keep one logarithm of each row's sum: it is
rounded to a share of the largest logit, which their weights inherit.
"""

import math
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from attnbench.attention.checks.trial import same_draws, tokens, trials
from attnbench.attention.kernels.recurrence import decay_rule, delta_rule, dplr_rule
from attnbench.mechanisms.catalogue import registry

ROUNDING = 2**-23
LENGTH = 60
KINDS = ("1e-6", "1", "300", "1000", "zeros", "equal", "spike")
USUAL = {True: "spike", False: "300"}  # where it is causal, and where it is full


def inputs(w, kind):
    x = tokens(w)
    if kind == "zeros":
        return torch.zeros_like(x)
    if kind == "equal":
        return x[:, :1].expand_as(x).clone()
    if kind == "spike":
        x[:, w.seq_len // 3] *= 1e4
        return x
    return (x * float(kind)).bfloat16().double()


class LargestLogit(TorchDispatchMode):
    """The largest logit that a fused kernel may have computed."""

    found = 0.0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if "_scaled_dot_product" in op.__name__ and "backward" not in op.__name__:
            q, k = args[0].double(), args[1].double()
            scale = (kwargs or {}).get("scale") or q.shape[-1] ** -0.5
            largest = q.norm(dim=-1).max() * k.norm(dim=-1).max() * scale
            self.found = max(self.found, largest.item())
        return op(*args, **(kwargs or {}))


def evaluated(module, x, dtype):
    """The output and all gradients, by name, in float64."""
    x = x.to(dtype).requires_grad_()
    y = same_draws(module, x)
    generator = torch.Generator().manual_seed(3)
    weights = torch.randn(y.shape, generator=generator).bfloat16().to(dtype)
    leaves = {"x": x, **{n: p for n, p in module.named_parameters() if p.requires_grad}}
    raw = torch.autograd.grad((y * weights).sum(), [*leaves.values()], allow_unused=True)
    given = {f"d{name}": t for name, t in zip(leaves, raw, strict=True) if t is not None}
    return {name: t.detach().double() for name, t in {"y": y, **given}.items()}


class Rounding(TorchDispatchMode):
    """Changes numbers by at most one rounding of float32; within it, logits and their gradients."""

    def __init__(self, seed):
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def changed(self, t):
        return t * (1 + ROUNDING * (2 * torch.rand(t.shape, generator=self.generator).to(t) - 1))

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op is torch.ops.aten._softmax.default:
            args = (self.changed(args[0]), *args[1:])
        found = op(*args, **(kwargs or {}))
        return self.changed(found) if op is torch.ops.aten._softmax_backward_data.default else found


def rounded(module, x, seed):
    """What `evaluated` gives in float64 for tokens, parameters and logits that are rounded once."""
    rounding = Rounding(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(rounding.changed(parameter))
    with rounding:
        return evaluated(module, rounding.changed(x), torch.float64)


def compare(trial, kind):
    w = trial.workload(LENGTH)
    narrow, x = replace(w, dtype="float32"), inputs(w, kind)
    exact = evaluated(trial.build(w, form="eager"), x, torch.float64)
    near = [rounded(trial.build(w, form="eager"), x, seed) for seed in (1, 2)]
    eager = evaluated(trial.build(narrow, torch.float32, "eager"), x, torch.float32)
    with LargestLogit() as logit:
        found = evaluated(trial.build(narrow, torch.float32), x, torch.float32)
    largest = max(exact[name].abs().max().item() for name in exact if name != "y")
    for name, expected in exact.items():
        assert found[name].isfinite().all(), f"{name} is not finite"
        own = expected.abs().max().item()
        by_kernel = math.expm1(min(50, ROUNDING * logit.found)) * (own if name == "y" else largest)
        errors = [(each[name] - expected).abs().max().item() for each in (eager, *near, found)]
        allowed = 4 * (errors[0] + max(errors[1:3])) + 1e-6 * own + 2 * by_kernel
        assert errors[-1] <= allowed, f"{name} errs by {errors[-1]:.1e}; allowed: {allowed:.1e}"


def given():
    for name in registry.names():
        for label, trial in trials(registry.card(name)):
            if label[0] != "0" or trial.form == "eager":
                continue
            for kind in KINDS:
                marks = () if kind == USUAL[trial.causal] else pytest.mark.long
                yield pytest.param(trial, kind, id=f"{name}-{label}-{kind}", marks=marks)


@pytest.mark.parametrize(("trial", "kind"), [*given()])
def test_a_form_is_as_right_as_eager(trial, kind):
    compare(trial, kind)


@pytest.mark.parametrize("length", [140, pytest.param(1024, marks=pytest.mark.long)])
@pytest.mark.parametrize("causal", [False, True])
def test_entmax_of_logits_of_millions_is_finite(length, causal):
    card = registry.card("adaptively_sparse")
    labels = dict(trials(card))
    trial = labels["0-chunked-causal" if causal else "0-chunked"]
    w = replace(trial.workload(length), dtype="float32")
    found = evaluated(trial.build(w, torch.float32), inputs(w, "1000"), torch.float32)
    assert all(t.isfinite().all() for t in found.values())


RULES = {
    "decay": (decay_rule, False),
    "delta": (delta_rule, False),
    "decay by row": (decay_rule, True),
    "delta by row": (delta_rule, True),
    "dplr": (dplr_rule, True),
}
MIXES = {
    "half of them strong": (-0.01, -5.0),
    "weak ones alone": (-0.03, -0.06, -0.5),
    "of 15": (-0.01, -0.1, -15.0),
    "of every size": (-1e-6, -1e-3, -0.1, -1.0, -5.0, -15.0, -40.0, -100.0),
    "strong ones alone": (-15.0, -20.0),
    "beyond all": (-200.0, -1000.0),
    "as strong as float32 takes": (-2.45, -2.3),
}
MIXED = ("half of them strong", "of every size", "as strong as float32 takes")
B, H, N, DK, DV = 1, 2, 130, 8, 8


def drawn(rule, by_row, sizes):
    """Inputs of a rule, with decays of these logs at random."""
    torch.manual_seed(1)
    shape = (B, H, N, DK) if by_row else (B, H, N)
    g = torch.tensor(sizes)[torch.randint(len(sizes), shape)]
    q, k = torch.randn(2, B, H, N, DK)
    k = k / k.norm(dim=-1, keepdim=True)
    v, beta, S = torch.randn(B, H, N, DV), torch.rand(B, H, N), torch.randn(B, H, DK, DV)
    if rule is dplr_rule:
        return S, g.clamp(min=-0.6), q, 0.1 * k, v, beta[..., None] * k, k
    if rule is delta_rule:
        return S, g, q, k, v, beta
    return (S if by_row else S[:, :, :, None]), g, q, k, v


def results(rule, tensors, dtype, chunk):
    copies = [x.to(dtype).requires_grad_() for x in tensors]
    o, S = rule(*copies, chunk)
    loss = (o * torch.arange(o.numel()).view(o.shape).to(dtype).cos()).sum() + S.sum()
    return [o, S, *torch.autograd.grad(loss, copies)]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(
    "mix",
    [pytest.param(mix, marks=() if mix in MIXED else pytest.mark.long) for mix in MIXES],
)
def test_mixes_of_decays_cost_no_digits(name, mix):
    """Each output and gradient relative to its own size, or to 10⁻⁸, in chunks of 16 to 128."""
    (rule, by_row), sizes = RULES[name], MIXES[mix]
    tensors = drawn(rule, by_row, sizes)
    exact = results(rule, tensors, torch.float64, None)
    for chunk in (16, 32, 64, *((128,) if rule is not dplr_rule else ())):
        for a, b in zip(results(rule, tensors, torch.float32, chunk), exact, strict=True):
            error = (a.double() - b).abs().max() / b.abs().max().clamp(min=1e-8)
            assert error < 1e-6, f"chunk {chunk}: {error:.1e}"
