"""The contract over the registry: every mechanism × form × full or causal, from its card alone."""

import re
from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attnbench.contract import QKVAttention, merge
from attnbench.records import Causality, Level, Workload
from attnbench.registry import card, names

LENGTHS = (1, 2, 23)
CAUSAL = {
    Causality.NEVER: (False,),
    Causality.OPTIONAL: (False, True),
    Causality.ALWAYS: (True,),
}


def workload(seq_len=17, batch=2, level=Level.ATTENTION, dtype="float64", **sizes):
    return Workload(
        batch=batch, seq_len=seq_len, width=16, heads=4, level=level, dtype=dtype, **sizes
    )


def every(forms=True):
    """(mechanism, example, form, causal) that run here, of all forms or of `eager` alone."""
    return list(_every(forms))


def _every(forms):
    for name in names():
        its = card(name)
        for index, config in enumerate(its.examples):
            for form in its.forms if forms else ("eager",):
                for causal in CAUSAL[its.causality]:
                    if its.refusal(form, config, workload(causal=causal)) is None:
                        suffix = "-causal" if causal else ""
                        label = f"{name}-{index}-{form}{suffix}"
                        yield pytest.param(name, index, form, causal, id=label)


@pytest.mark.parametrize(
    ("name", "form"), [(name, form) for name in names() for form in card(name).forms]
)
def test_every_form_runs_here_or_says_why(name, form):
    its = card(name)
    causal = its.causality is Causality.ALWAYS
    reasons = [its.refusal(form, config, workload(causal=causal)) for config in its.examples]
    if None not in reasons:
        pytest.skip(reasons[0])


def build(name, index, form, w, dtype=torch.float64):
    """The module with repeatable parameters, in training mode for draws; skips with its reason."""
    its = card(name)
    config = its.examples[index]
    if reason := its.refusal(form, config, w):
        pytest.skip(reason)
    torch.manual_seed(0)
    module = its.forms[form](config, w).double()
    for parameter in module.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, std=0.1)
    return module.to(dtype).eval()


def tokens(w, seed=1, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(w.batch, w.seq_len, w.width, generator=generator, dtype=dtype)


def some_padding(w):
    """Sequence 0 is all real; of the others, about a third at the end is padding."""
    mask = torch.ones(w.batch, w.seq_len, dtype=torch.bool)
    mask[1:, w.seq_len - w.seq_len // 3 :] = False
    return mask


def same_draws(module, x, mask=None):
    """The module's output with its random draws repeated."""
    torch.manual_seed(7)
    return module(x, mask)


@pytest.mark.parametrize(("name", "index", "form", "causal"), every())
@pytest.mark.parametrize("masked", [False, True], ids=["full", "masked"])
@pytest.mark.parametrize("seq_len", LENGTHS)
def test_it_computes_its_own_equations(name, index, form, causal, masked, seq_len):
    w = workload(seq_len, causal=causal)
    module = build(name, index, form, w)
    x = tokens(w).requires_grad_()
    mask = some_padding(w) if masked else None
    y = same_draws(module, x, mask)
    assert y.shape == x.shape
    assert y.dtype == x.dtype
    weights = tokens(w, seed=3)
    if masked:
        weights = weights * mask[..., None]
    ours = torch.autograd.grad((y * weights).sum(), [x, *module.parameters()], allow_unused=True)
    draws = [{k: v.detach() for k, v in module.draws(b).items()} for b in range(w.batch)]
    x2 = x.detach().requires_grad_()
    rows = [
        card(name).reference(module, x2[b], None if mask is None else mask[b], draws[b])
        for b in range(w.batch)
    ]
    expected = torch.stack(rows)
    real = torch.ones(w.batch, seq_len, dtype=torch.bool) if mask is None else mask
    torch.testing.assert_close(y[real], expected[real], rtol=1e-8, atol=1e-9)
    theirs = torch.autograd.grad(
        (expected * weights)[real].sum(), [x2, *module.parameters()], allow_unused=True
    )
    labels = ["x", *(label for label, _ in module.named_parameters())]
    for label, a, b in zip(labels, ours, theirs, strict=True):
        zero = torch.zeros((), dtype=torch.float64)
        a, b = (zero if g is None else g for g in (a, b))
        a, b = torch.broadcast_tensors(a, b)
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8, msg=lambda m, n=label: f"{n}: {m}")


@pytest.mark.parametrize(("name", "index", "form", "causal"), every())
def test_gradients_reach_x_and_every_parameter(name, index, form, causal):
    w = workload(40, causal=causal)
    module = build(name, index, form, w).train()
    x = tokens(w).requires_grad_()
    loss = (same_draws(module, x) * tokens(w, seed=3)).sum()
    if (extra := module.auxiliary_loss()) is not None:
        loss = loss + extra
    loss.backward()
    for label, tensor in [("x", x), *module.named_parameters()]:
        assert tensor.grad is not None, label
        assert tensor.grad.isfinite().all(), label
        assert tensor.grad.abs().sum() > 0, label


@pytest.mark.parametrize(("name", "index", "form", "causal"), every())
def test_sequences_of_a_batch_do_not_mix(name, index, form, causal):
    w = workload(17, batch=3, causal=causal)
    module = build(name, index, form, w)
    x = tokens(w)
    y = same_draws(module, x)
    other = x.clone()
    other[1] = 2 * other[1] + 1
    changed = same_draws(module, other)
    torch.testing.assert_close(changed[[0, 2]], y[[0, 2]], rtol=1e-10, atol=1e-11)
    assert not torch.allclose(changed[1], y[1])


@pytest.mark.parametrize(("name", "index", "form", "causal"), every())
def test_what_is_masked_changes_no_real_token(name, index, form, causal):
    w = workload(23, causal=causal)
    module = build(name, index, form, w)
    mask = some_padding(w)
    x = tokens(w)
    y = same_draws(module, x, mask)
    y2 = same_draws(module, torch.where(mask[..., None], x, 100 * tokens(w, seed=5)), mask)
    torch.testing.assert_close(y2[mask], y[mask], rtol=1e-9, atol=1e-10)
    everything = same_draws(module, x, torch.ones_like(mask))
    torch.testing.assert_close(everything, same_draws(module, x), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("name", "index", "form", "causal"), every())
def test_extra_padding_changes_nothing_where_length_is_free(name, index, form, causal):
    if not card(name).length_free:
        pytest.skip("its parameters, grid or draws depend on N")
    short, long = workload(17, causal=causal), workload(29, causal=causal)
    module, longer = build(name, index, form, short), build(name, index, form, long)
    longer.load_state_dict(module.state_dict())
    x = tokens(short)
    padded = nn.functional.pad(x, (0, 0, 0, 12), value=3.0)
    mask = torch.arange(29).expand(2, 29) < 17
    y, y2 = same_draws(module, x), same_draws(longer, padded, mask)[:, :17]
    torch.testing.assert_close(y2, y, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("name", "index", "form", "causal"), every())
def test_a_sequence_of_padding_alone_is_finite_and_its_core_is_zero(name, index, form, causal):
    w = workload(17, causal=causal)
    module = build(name, index, form, w)
    mask = some_padding(w)
    mask[1] = False
    x = tokens(w).requires_grad_()
    y = same_draws(module, x, mask)
    y[mask].sum().backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()
    if card(name).has_core and card(name).refusal(form, module.config, core(w)) is None:
        if getattr(module.config, "interaction", "product") != "product":
            pytest.skip("u = k̄ + v keeps v by definition")
        module = build(name, index, form, core(w))
        q, k, v = torch.randn(3, 2, w.heads, 17, w.head_width, dtype=torch.float64)
        torch.manual_seed(7)
        assert (module.attend(q, k, v, mask)[1] == 0).all()


def core(w):
    return replace(w, level=Level.CORE)


@pytest.mark.parametrize(
    ("name", "index", "form", "causal"), [p for p in every() if p.values[3] is True]
)
@pytest.mark.parametrize("seq_len", [9, 40])
def test_causal_is_blind_to_the_future(name, index, form, causal, seq_len):
    if card(name).selection_leaks:
        pytest.skip("content-based assignment; tested with the assignment frozen, in its own file")
    w = workload(seq_len, batch=1, causal=True)
    module = build(name, index, form, w)
    x = tokens(w).requires_grad_()
    y = same_draws(module, x)
    for i in {0, 1, seq_len // 2, seq_len - 2}:
        (gradient,) = torch.autograd.grad(y[0, i].sum(), x, retain_graph=True)
        assert (gradient[0, i + 1 :] == 0).all(), f"token {i} sees the future"
        other = x.detach().clone()
        other[:, i + 1 :] = 3 * other[:, i + 1 :] + 1
        again = same_draws(module, other)
        torch.testing.assert_close(again[:, : i + 1], y[:, : i + 1], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("name", "index", "form", "causal"), every())
def test_forms_share_parameters_and_agree(name, index, form, causal):
    w = workload(40, causal=causal)
    module, plain = build(name, index, form, w), build(name, index, "eager", w)
    plain.load_state_dict(module.state_dict())
    mask = some_padding(w)
    x = tokens(w)
    for m in (None, mask):
        real = mask if m is not None else torch.ones_like(mask)
        a, b = same_draws(module, x, m), same_draws(plain, x, m)
        torch.testing.assert_close(a[real], b[real], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(("name", "index", "form", "causal"), every())
def test_float32_stays_near_float64(name, index, form, causal):
    w = workload(40, causal=causal)
    module = build(name, index, form, w)
    single = build(name, index, form, w, torch.float32)
    if card(name).selection_leaks:
        pytest.skip("an assignment may round to another choice")
    x = tokens(w)
    y, y2 = same_draws(module, x), same_draws(single, x.float())
    assert y2.dtype == torch.float32
    torch.testing.assert_close(y2.double(), y, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("name", "index", "form", "causal"), every(forms=False))
def test_declared_parameters_are_those_of_the_module(name, index, form, causal):
    for seq_len in (17, 40):
        w = workload(seq_len, causal=causal)
        module = build(name, index, form, w)
        counted = sum(p.numel() for p in module.parameters() if p.requires_grad)
        assert card(name).parameters(module.config, w) == counted


def products():
    """FLOPs of products that torch's counter leaves out."""
    aten = torch.ops.aten

    def attention(q, k, v, *_, **__):
        B, H, N, d = q
        return 2 * (2 * B * H * N * k[2] * d)

    return {
        aten._scaled_dot_product_flash_attention_for_cpu: attention,
        aten._scaled_dot_product_fused_attention_overrideable: attention,
        aten.mv: lambda a, b, **_: 2 * a[0] * a[1],
        aten.dot: lambda a, b, **_: 2 * a[0],
    }


@pytest.mark.parametrize(("name", "index", "form", "causal"), every())
@pytest.mark.parametrize("seq_len", [24, 37, 64])
def test_declared_flops_are_those_that_torch_counts(name, index, form, causal, seq_len):
    w = workload(seq_len, batch=3, causal=causal)
    module = build(name, index, form, w, torch.float32)
    x = tokens(w, dtype=torch.float32)
    mapping = {op: (lambda *a, f=f, out_shape=None, **k: f(*a)) for op, f in products().items()}
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=mapping) as counter:
        module(x)
    declared = module.flops(module.config, w)
    assert declared.projections + declared.core == counter.get_total_flops()


@pytest.mark.parametrize(("name", "index", "form", "causal"), every())
def test_the_core_alone_is_what_stands_between_the_maps(name, index, form, causal):
    its = card(name)
    w = workload(17, causal=causal)
    config = its.examples[index]
    if not its.has_core or its.refusal(form, config, core(w)):
        pytest.skip("no core apart from its linear maps")
    whole, alone = build(name, index, form, w), build(name, index, form, core(w))
    assert isinstance(alone, QKVAttention)
    assert alone.state_dict().keys() <= whole.state_dict().keys()
    q, k, v = torch.randn(3, 2, w.heads, 17, w.head_width, dtype=torch.float64)
    torch.manual_seed(7)
    o = alone.attend(q, k, v, None)
    assert merge(o).shape[:2] == (2, 17)


@pytest.mark.parametrize("name", names())
def test_the_file_explains_itself(name):
    its = card(name)
    module = its.forms["eager"]
    text = __import__(module.__module__, fromlist=["x"]).__doc__
    assert f"Source: {its.paper.source}" in text, "the docstring names the card's source"
    assert re.search(r"\[B, (H, )?N", text), "the docstring has shapes"
    assert module.__name__.lower() == name.replace("_", ""), "class and file have one name"
    assert its.config.__doc__
    for option in fields(its.config):
        documented = f"`{option.name}`" in its.config.__doc__ or option.name == "bias"
        assert documented, f"{option.name} is not explained"
    with pytest.raises(FrozenInstanceError):
        its.config().bias = True
    assert its.forms[its.default(its.config(), workload())] is not None
    for example in its.examples:
        assert isinstance(example, its.config)
