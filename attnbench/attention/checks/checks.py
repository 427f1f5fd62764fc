"""The contract of a mechanism, checked from the card alone.

Each check takes a `Trial` and raises `AssertionError` that says what is wrong. Where it does not
apply is known beforehand, by `checks`. Sizes are small, and the type is float64 unless stated
otherwise, so that a mechanism takes seconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, product

import torch
from torch import nn
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from attnbench.attention.card import Card, Exemption
from attnbench.attention.checks import training
from attnbench.attention.checks.equations import NUMBER_TYPES, computes_its_own_equations
from attnbench.attention.checks.flops import counted_flops
from attnbench.attention.checks.trial import (
    NotApplicable,
    Trial,
    core_inputs,
    in_dtype,
    same_draws,
    some_padding,
    tokens,
    trials,
    without_gradient,
)
from attnbench.attention.contract import Attention, CoreAttention, State
from attnbench.records import Causality, Level

LENGTHS = (1, 2, 23)

Check = Callable[[Trial], str | None]  # what is worth saying where it passes

# what this package's own mechanisms promise, and modules of users need not: it is only noted
PROMISED = frozenset(
    (
        training.bf16_autocast_works_in_both_modes,
        training.a_second_derivative_is_exact_or_raises,
        training.a_checkpoint_gives_the_same_gradients,
        training.an_empty_batch_and_one_token_work,
    )
)


def verify(card: Card) -> list[dict[str, str]]:
    """Each check on each trial: `check`, `trial`, `result`, `reason`.

    Results are passed, failed, skipped, and noted: what a module does not do and did not promise.
    """
    return [
        {"check": name_of(check), "trial": label, **result(check, trial, exempt)}
        for label, trial in trials(card)
        for check, exempt in checks(trial).items()
    ]


def result(check: Check, trial: Trial, exempt: str | None) -> dict[str, str]:
    """Whether a trial passes, with what is worth saying, or why it does not or is `exempt`."""
    try:
        if exempt:
            raise NotApplicable(exempt)
        remark = check(trial)
    except NotApplicable as error:
        return {"result": "skipped", "reason": str(error)}
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = " ".join(lines[:4])
        wrong = isinstance(error, AssertionError)
        reason = f"{type(error).__name__}: {text}"
        silent = wrong and check is training.a_checkpoint_gives_the_same_gradients
        if check in PROMISED and not trial.card.declared and not silent:
            return {"result": "noted", "reason": text if wrong else f"raises {reason}"}
        return {"result": "failed", "reason": reason}
    return {"result": "passed", "reason": remark or ""}


def name_of(check: Check) -> str:
    """The rule as a sentence."""
    return check.__name__.replace("_", " ")


def gives_the_shape_and_type_it_was_given(trial: Trial) -> None:
    for seq_len in LENGTHS:
        for dtype in (torch.float64, torch.float32):
            w = trial.workload(seq_len)
            y = same_draws(trial.build(w, dtype), tokens(w, dtype=dtype))
            assert y.shape == (w.batch, seq_len, w.width), f"shape {list(y.shape)} at N = {seq_len}"
            assert y.dtype == dtype, f"{y.dtype} for {dtype}"
            assert y.isfinite().all(), f"not finite at N = {seq_len}"


def gradients_reach_x_and_every_parameter(trial: Trial) -> None:
    unreached = without_gradient(trial)
    if unreached and trial.card.causality is Causality.OPTIONAL:
        other = replace(trial, causal=not trial.causal)
        if not set(unreached) & set(without_gradient(other)):
            form = "causal" if other.causal else "full"
            raise NotApplicable(f"only the {form} form uses {', '.join(unreached)}")
    assert not unreached, f"no gradient reaches {', '.join(unreached)}"


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
    w = trial.workload(23)
    module = trial.build(w)
    at_the_end = some_padding(w)
    x = tokens(w)
    between = at_the_end.clone()
    between[1:, 2::5] = False
    for mask in (at_the_end, between):
        y = same_draws(module, x, mask)
        y2 = same_draws(module, torch.where(mask[..., None], x, 100 * tokens(w, seed=5)), mask)
        assert_close(y2[mask], y[mask], rtol=1e-9, atol=1e-10)
    everything = same_draws(module, x, torch.ones_like(at_the_end))
    assert_close(everything, same_draws(module, x), rtol=1e-9, atol=1e-10)


def padding_at_the_end_changes_nothing(trial: Trial) -> None:
    """Whatever its length: within the last block, or many blocks of padding alone."""
    short = trial.workload(17)
    module = trial.build(short)
    x = tokens(short)
    y = same_draws(module, x)
    for seq_len in (18, 29, 62):
        longer = trial.build(trial.workload(seq_len))
        longer.load_state_dict(dict(module.named_parameters()), strict=False)
        padded = nn.functional.pad(x, (0, 0, 0, seq_len - 17), value=3.0)
        mask = torch.arange(seq_len, device=x.device).expand(2, -1) < 17
        y2 = same_draws(longer, padded, mask)[:, :17]
        label = f"N = {seq_len}: "
        assert_close(y2, y, rtol=1e-9, atol=1e-10, msg=label.__add__)


def a_sequence_of_padding_alone_is_finite(trial: Trial) -> None:
    w = trial.workload(17)
    module = trial.build(w)
    mask = some_padding(w)
    mask[1] = False
    x = tokens(w).requires_grad_()
    y = same_draws(module, x, mask)
    y[mask].sum().backward()
    assert y.isfinite().all(), "the output is not finite"
    assert x.grad is not None
    assert x.grad.isfinite().all(), "the gradient is not finite"


def the_core_of_a_sequence_of_padding_alone_is_zero(trial: Trial) -> None:
    w = replace(trial.workload(17), level=Level.CORE)
    mask = some_padding(w)
    mask[1] = False
    core = trial.build(w)
    assert isinstance(core, CoreAttention)
    o = same_draws(core.attend, *core_inputs(core, w), mask)
    assert (o[1] == 0).all(), "the core is not zero"


def causal_is_blind_to_the_future(trial: Trial) -> None:
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


def declared_parameters_are_those_of_the_module(trial: Trial) -> None:
    for seq_len in (17, 40):
        w = trial.workload(seq_len)
        counted = sum(p.numel() for p in trial.build(w).parameters() if p.requires_grad)
        declared = trial.card.parameters(trial.config, w)
        assert declared == counted, f"{declared} declared, {counted} counted at N = {seq_len}"


def declared_flops_are_those_that_torch_counts(trial: Trial) -> None:
    for seq_len in (24, 37, 64):
        w = trial.workload(seq_len, batch=3)
        module = trial.build(w, torch.float32)
        x = tokens(w, dtype=torch.float32)
        flops = module.flops(module.config, w)
        declared = flops.projections + flops.core
        # of the few later keys on the diagonal of blocks forms may count the products
        counted = {counted_flops(module, x, skipping=skips) for skips in (True, False)}
        assert declared in counted, f"{declared} declared, {counted} counted at N = {seq_len}"


def the_core_is_what_stands_between_the_projections(trial: Trial) -> None:
    w = trial.workload(17)
    whole = trial.build(w)
    core = trial.build(replace(w, level=Level.CORE))
    assert isinstance(core, CoreAttention)
    assert core.state_dict().keys() <= whole.state_dict().keys(), "the core has more parameters"
    o = same_draws(core.attend, *core_inputs(core, w), None)
    assert (o.shape[0], o.shape[2]) == (2, 17)


def steps_continue_the_causal_pass(
    trial: Trial, types: Sequence[torch.dtype] = NUMBER_TYPES
) -> None:
    """After a prefill of any length, token by token, each step taken twice from the same state.

    In steps of several tokens too, where the form takes them.
    """
    for dtype, steps in product(types, ((1,), (5, 2, 1)) if takes_several(trial) else ((1,),)):
        w = replace(trial.workload(37), step=max(steps))
        if trial.refusal(in_dtype(w, dtype)):
            continue
        module = trial.build(w, dtype)
        x = tokens(w, dtype=dtype)
        with torch.no_grad():
            expected = module(x)
            # each may differ this much from the equations, in either direction
            allowed = 2 * trial.allowed(dtype) * expected.abs().max()
            for prefilled in (0, 1, 7, 36) if dtype == torch.float64 else (16,):
                y, state = continued(module, x, prefilled, steps)
                error = (y - expected).abs().max()
                label = f"{dtype}, {prefilled} tokens, {steps}"
                assert error <= allowed, f"{label}: {error:.1e} apart"
        tensors = [part for part in tree_leaves(state) if isinstance(part, torch.Tensor)]
        counted = sum(tensor.numel() for tensor in tensors)
        declared = module.state_elements(trial.config, w)
        assert declared == counted, f"{declared} elements of the state declared, {counted} counted"


def continued(
    module: Attention, x: torch.Tensor, prefilled: int, steps: Sequence[int] = (1,)
) -> tuple[torch.Tensor, State]:
    """Outputs of a prefill of `prefilled` tokens, then of steps, in turns, and the final state."""
    state = module.start(len(x), x.shape[1])
    outputs = []
    if prefilled:
        y, state = module.prefill(x[:, :prefilled], state)
        outputs.append(y)
    counts = cycle(steps)
    rest = x[:, prefilled:]
    while rest.shape[1]:
        more, rest = rest.tensor_split([next(counts)], 1)
        first, _ = module.step(more, state)
        y, state = module.step(more, state)
        assert y.equal(first), "a step repeated from the same state gives another output"
        outputs.append(y)
    return torch.cat(outputs, 1), state


def takes_several(trial: Trial) -> bool:
    """Whether a step of the form takes several tokens."""
    return not trial.card.forms[trial.form].one_token_reason


def declared_flops_of_a_step_are_those_that_torch_counts(trial: Trial) -> None:
    several = ((7, 5), (37, 9)) if takes_several(trial) else ()
    for seq_len, step in ((2, 1), (7, 1), (37, 1), *several):
        w = replace(trial.workload(seq_len, batch=3), step=step)
        module = trial.build(w, torch.float32)
        declared = module.step_flops(module.config, w)
        assert declared is not None
        x = tokens(w, dtype=torch.float32)
        with torch.no_grad():
            _, state = module.prefill(x[:, :-step], module.start(w.batch, seq_len))
        counted = counted_flops(module, x[:, -step:], call=partial(module.step, state=state))
        total = declared.projections + declared.core
        assert total == counted, f"{total} declared, {counted} counted at N = {seq_len}"


def checks(trial: Trial) -> dict[Check, str | None]:
    """Every check, with the reason why it does not apply to a trial, or None."""
    card = trial.card
    w = trial.workload(17)
    claimed = card.exemptions(trial.config)
    padded = trial.refusal(replace(w, padding=0.3))
    core = trial.refusal(replace(w, level=Level.CORE))
    causal = None if trial.causal else "not causal"
    steps = causal or card.cannot_decode(trial.form)
    step = steps
    if not steps and card.forms[trial.form].step_flops(trial.config, w) is None:
        step = "the form declares no FLOPs of a step; they are counted"
    counted = None if card.declared else "the card declares none; they are counted when it runs"
    return {
        gives_the_shape_and_type_it_was_given: None,
        computes_its_own_equations: None if card.reference else "the card has no reference",
        gradients_reach_x_and_every_parameter: None,
        sequences_of_a_batch_do_not_mix: None,
        what_is_masked_changes_no_real_token: padded,
        padding_at_the_end_changes_nothing: padded or claimed.get(Exemption.EXTRA_PADDING),
        a_sequence_of_padding_alone_is_finite: padded,
        the_core_of_a_sequence_of_padding_alone_is_zero: (
            core or padded or claimed.get(Exemption.NO_VALID_KEY)
        ),
        causal_is_blind_to_the_future: causal or claimed.get(Exemption.FUTURE_SELECTION),
        declared_parameters_are_those_of_the_module: counted,
        declared_flops_are_those_that_torch_counts: counted,
        the_core_is_what_stands_between_the_projections: core,
        steps_continue_the_causal_pass: steps,
        declared_flops_of_a_step_are_those_that_torch_counts: step,
        **dict.fromkeys(training.CHECKS),
    }
