"""The contract of a mechanism, checked from its card alone.

Each check takes a `Trial` and raises `AssertionError` with what is wrong, or `NotApplicable` with
why there is nothing to check. All work is on small sizes in float64: seconds for a mechanism.
"""

from dataclasses import replace

import torch
from torch import nn
from torch.testing import assert_close

from attnbench.contract import Card, QKVAttention, merge
from attnbench.measure.trial import (
    NotApplicable,
    Trial,
    core_inputs,
    counted_flops,
    same_draws,
    some_padding,
    tokens,
    trials,
)
from attnbench.records import Level

LENGTHS = (1, 2, 23)


def verify(card: Card) -> list[dict[str, str]]:
    """Each check on each trial: `check`, `trial`, `result` (passed, failed, skipped), `reason`."""
    found = []
    for check in CHECKS:
        for label, trial in trials(card):
            result, reason = "passed", ""
            try:
                check(trial)
            except NotApplicable as why:
                result, reason = "skipped", str(why)
            except Exception as error:
                lines = [line.strip() for line in str(error).splitlines() if line.strip()]
                result, reason = "failed", " ".join([type(error).__name__ + ":", *lines[:4]])
            name = check.__name__.replace("_", " ")
            found.append({"check": name, "trial": label, "result": result, "reason": reason})
    return found


def gives_the_shape_and_type_it_was_given(trial: Trial) -> None:
    for seq_len in LENGTHS:
        for dtype in (torch.float64, torch.float32):
            w = trial.workload(seq_len)
            y = same_draws(trial.build(w, dtype), tokens(w, dtype=dtype))
            assert y.shape == (w.batch, seq_len, w.width), f"shape {list(y.shape)} at N = {seq_len}"
            assert y.dtype == dtype, f"{y.dtype} for {dtype}"
            assert y.isfinite().all(), f"not finite at N = {seq_len}"


def computes_its_own_equations(trial: Trial) -> None:
    """Outputs and gradients against the card's reference, at odd lengths, with and without mask."""
    if trial.card.reference is None:
        raise NotApplicable("it has no reference")
    for seq_len in LENGTHS:
        for masked in (False, True):
            against_its_reference(trial, seq_len, masked)


def against_its_reference(trial: Trial, seq_len: int, masked: bool) -> None:
    w = trial.workload(seq_len)
    module = trial.build(w)
    x = tokens(w).requires_grad_()
    mask = some_padding(w) if masked else None
    y = same_draws(module, x, mask)
    real = torch.ones(w.batch, seq_len, dtype=torch.bool) if mask is None else mask
    weights = tokens(w, seed=3) * real[..., None]
    ours = torch.autograd.grad((y * weights).sum(), [x, *module.parameters()], allow_unused=True)
    draws = [{k: v.detach() for k, v in module.draws(b).items()} for b in range(w.batch)]
    x2 = x.detach().requires_grad_()
    rows = [
        trial.card.reference(module, x2[b], None if mask is None else mask[b], draws[b])
        for b in range(w.batch)
    ]
    expected = torch.stack(rows)
    assert_close(y[real], expected[real], rtol=1e-8, atol=1e-9)
    theirs = torch.autograd.grad(
        (expected * weights)[real].sum(), [x2, *module.parameters()], allow_unused=True
    )
    labels = ["x", *(label for label, _ in module.named_parameters())]
    for label, a, b in zip(labels, ours, theirs, strict=True):
        zero = torch.zeros((), dtype=torch.float64)
        a, b = torch.broadcast_tensors(*(zero if g is None else g for g in (a, b)))
        assert_close(a, b, rtol=1e-6, atol=1e-8, msg=lambda m, n=label: f"gradient of {n}: {m}")


def gradients_reach_x_and_every_parameter(trial: Trial) -> None:
    w = trial.workload(40)
    module = trial.build(w).train()
    x = tokens(w).requires_grad_()
    loss = (same_draws(module, x) * tokens(w, seed=3)).sum()
    if (extra := module.auxiliary_loss()) is not None:
        loss = loss + extra
    loss.backward()
    for label, tensor in [("x", x), *module.named_parameters()]:
        assert tensor.grad is not None, f"{label} gets none"
        assert tensor.grad.isfinite().all(), f"that of {label} is not finite"
        assert tensor.grad.abs().sum() > 0, f"that of {label} is zero"


def sequences_of_a_batch_do_not_mix(trial: Trial) -> None:
    w = trial.workload(17, batch=3)
    module = trial.build(w)
    x = tokens(w)
    y = same_draws(module, x)
    other = x.clone()
    other[1] = 2 * other[1] + 1
    changed = same_draws(module, other)
    assert_close(changed[[0, 2]], y[[0, 2]], rtol=1e-10, atol=1e-11)
    assert not torch.allclose(changed[1], y[1]), "a changed sequence changed no output"


def what_is_masked_changes_no_real_token(trial: Trial) -> None:
    takes_a_mask(trial)
    w = trial.workload(23)
    module = trial.build(w)
    mask = some_padding(w)
    x = tokens(w)
    y = same_draws(module, x, mask)
    y2 = same_draws(module, torch.where(mask[..., None], x, 100 * tokens(w, seed=5)), mask)
    assert_close(y2[mask], y[mask], rtol=1e-9, atol=1e-10)
    everything = same_draws(module, x, torch.ones_like(mask))
    assert_close(everything, same_draws(module, x), rtol=1e-9, atol=1e-10)


def extra_padding_changes_nothing_where_length_is_free(trial: Trial) -> None:
    takes_a_mask(trial)
    if not trial.card.length_free:
        raise NotApplicable("its parameters, grid or draws depend on N")
    short, long = trial.workload(17), trial.workload(29)
    module, longer = trial.build(short), trial.build(long)
    longer.load_state_dict(module.state_dict())
    x = tokens(short)
    padded = nn.functional.pad(x, (0, 0, 0, 12), value=3.0)
    mask = torch.arange(29).expand(2, 29) < 17
    y, y2 = same_draws(module, x), same_draws(longer, padded, mask)[:, :17]
    assert_close(y2, y, rtol=1e-9, atol=1e-10)


def a_sequence_of_padding_alone_is_finite_and_its_core_is_zero(trial: Trial) -> None:
    takes_a_mask(trial)
    w = trial.workload(17)
    module = trial.build(w)
    mask = some_padding(w)
    mask[1] = False
    x = tokens(w).requires_grad_()
    y = same_draws(module, x, mask)
    y[mask].sum().backward()
    assert y.isfinite().all(), "the output is not"
    assert x.grad.isfinite().all(), "the gradient is not"
    card, alone = trial.card, replace(w, level=Level.CORE)
    if card.has_core and card.refusal(trial.form, trial.config, alone) is None:
        if getattr(trial.config, "interaction", "product") != "product":
            raise NotApplicable("u = k̄ + v keeps v by definition")
        o = same_draws(trial.build(alone).attend, *core_inputs(w), mask)
        assert (o[1] == 0).all(), "the core is not zero"


def causal_is_blind_to_the_future(trial: Trial) -> None:
    if not trial.causal:
        raise NotApplicable("not causal")
    if trial.card.selection_leaks:
        raise NotApplicable("its assignment looks ahead; its own tests freeze it")
    for seq_len in (9, 40):
        w = trial.workload(seq_len, batch=1)
        module = trial.build(w)
        x = tokens(w).requires_grad_()
        y = same_draws(module, x)
        for i in {0, 1, seq_len // 2, seq_len - 2}:
            (gradient,) = torch.autograd.grad(y[0, i].sum(), x, retain_graph=True)
            assert (gradient[0, i + 1 :] == 0).all(), f"token {i} of {seq_len} sees the future"
            other = x.detach().clone()
            other[:, i + 1 :] = 3 * other[:, i + 1 :] + 1
            again = same_draws(module, other)
            assert_close(again[:, : i + 1], y[:, : i + 1], rtol=1e-9, atol=1e-10)


def forms_share_parameters_and_agree(trial: Trial) -> None:
    if trial.form == "eager":
        raise NotApplicable("it is the form that others are held against")
    w = trial.workload(40)
    module, plain = trial.build(w), trial.build(w, form="eager")
    plain.load_state_dict(module.state_dict())
    x, mask = tokens(w), some_padding(w)
    for m in (None, mask):
        real = mask if m is not None else torch.ones_like(mask)
        a, b = same_draws(module, x, m), same_draws(plain, x, m)
        assert_close(a[real], b[real], rtol=1e-8, atol=1e-9)


def float32_stays_near_float64(trial: Trial) -> None:
    if trial.card.selection_leaks:
        raise NotApplicable("an assignment may round to another choice")
    w = trial.workload(40)
    x = tokens(w)
    y = same_draws(trial.build(w), x)
    y2 = same_draws(trial.build(w, torch.float32), x.float())
    assert_close(y2.double(), y, rtol=1e-3, atol=1e-4)


def declared_parameters_are_those_of_the_module(trial: Trial) -> None:
    declared(trial)
    for seq_len in (17, 40):
        w = trial.workload(seq_len)
        counted = sum(p.numel() for p in trial.build(w).parameters() if p.requires_grad)
        said = trial.card.parameters(trial.config, w)
        assert said == counted, f"{said} declared, {counted} counted at N = {seq_len}"


def declared_flops_are_those_that_torch_counts(trial: Trial) -> None:
    declared(trial)
    for seq_len in (24, 37, 64):
        w = trial.workload(seq_len, batch=3)
        module = trial.build(w, torch.float32)
        counted = counted_flops(module, tokens(w, dtype=torch.float32))
        said = module.flops(module.config, w)
        total = said.projections + said.core
        assert total == counted, f"{total} declared, {counted} counted at N = {seq_len}"


def the_core_alone_is_what_stands_between_the_maps(trial: Trial) -> None:
    card, w = trial.card, trial.workload(17)
    alone = replace(w, level=Level.CORE)
    if not card.has_core or card.refusal(trial.form, trial.config, alone):
        raise NotApplicable("no core apart from its linear maps")
    whole, core = trial.build(w), trial.build(alone)
    assert isinstance(core, QKVAttention)
    assert core.state_dict().keys() <= whole.state_dict().keys(), "it has parameters of its own"
    o = same_draws(core.attend, *core_inputs(w), None)
    assert merge(o).shape[:2] == (2, 17)


CHECKS = (
    gives_the_shape_and_type_it_was_given,
    computes_its_own_equations,
    gradients_reach_x_and_every_parameter,
    sequences_of_a_batch_do_not_mix,
    what_is_masked_changes_no_real_token,
    extra_padding_changes_nothing_where_length_is_free,
    a_sequence_of_padding_alone_is_finite_and_its_core_is_zero,
    causal_is_blind_to_the_future,
    forms_share_parameters_and_agree,
    float32_stays_near_float64,
    declared_parameters_are_those_of_the_module,
    declared_flops_are_those_that_torch_counts,
    the_core_alone_is_what_stands_between_the_maps,
)


def takes_a_mask(trial: Trial) -> None:
    w = replace(trial.workload(17), padding=0.3)
    if reason := trial.card.refusal(trial.form, trial.config, w):
        raise NotApplicable(reason)


def declared(trial: Trial) -> None:
    if not trial.card.declared:
        raise NotApplicable("it declares none; they are counted where it runs")
