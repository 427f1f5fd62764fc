"""Whether a form keeps its digits: on usual inputs, and on those that break kernels.

Every row of a panel has the inputs of one stress, which replace tensors of the core by name
(`attention.core`). Errors are relative to the largest output, or to the largest gradient, against
the mechanism's default form in float64, which the contract compares with the equations.

The default form's own error, in the same number type on the same inputs, says what a stress costs
any sound arithmetic. A form passes within the tolerance of the number type, or within `FACTOR`
times the default form's error: of one recurrence, a loop over tokens and chunks differed up to
4.5 times. Under stress a form may have `fewer digits`, down to half of them, and is still steady.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import isfinite, sqrt
from typing import Any

import torch
from torch import Tensor

from attnbench.attention.card import Card, Tolerance
from attnbench.attention.core import LAYER, computed, tensor_names, usual
from attnbench.devices.finding import find
from attnbench.errors import one_line
from attnbench.records import Level
from attnbench.units import few
from attnbench.verify.equations import Values, errors, values
from attnbench.verify.stress import BFLOAT16, LONG, STRESSES, USUAL, Stress
from attnbench.verify.trial import (
    NotApplicable,
    Trial,
    core_inputs,
    in_dtype,
    same_draws,
    tokens,
    trials,
)

BAD = ("imprecise", "wrong", "not finite", "failed")
NO_MEMORY = ("out of memory", "can't allocate memory", "MemoryError")
RIGHT, STEADY = "right", "steady"
WIDTH, SHORTER, TOKENS, LONGER = 128, (1, 100), 512, (1024, 4096, 16_384, 65_536)
SLACK, FACTOR = 4.0, 10.0
ROUNDED = 1e-2  # a larger error is no matter of rounding
MOST_FLOPS, MOST_ELEMENTS, MOST_S = 2e10, 1 << 28, 4.0  # before a longer sequence

Row = dict[str, Any]


def panel(trial: Trial, dtype: torch.dtype = torch.float32) -> Iterator[Row]:
    """A row for each of the usual and of the stressed inputs that the form takes."""
    asked = [(RIGHT, USUAL, seq_len, dtype) for seq_len in (*SHORTER, TOKENS)]
    asked += [(STEADY, stress, TOKENS, dtype) for stress in STRESSES]
    if dtype is not torch.bfloat16:
        asked.append((STEADY, Stress(BFLOAT16), TOKENS, torch.bfloat16))
    for each in asked:
        with suppress(NotApplicable):
            yield row(trial, *each)
    with suppress(NotApplicable):
        yield from longer(trial, dtype)


def longer(trial: Trial, dtype: torch.dtype) -> Iterator[Row]:
    """Rows of longer sequences, of outputs alone, while they take little time and memory."""
    card, begun = trial.card, time.process_time()
    for seq_len in LONGER:
        w = trial.workload(seq_len, 1)
        form = card.forms[card.usual_form(trial.config, w)]
        work, elements = form.flops(trial.config, w).core, form.elements(trial.config, w)
        took_s = time.process_time() - begun
        if work > MOST_FLOPS or elements > MOST_ELEMENTS or took_s > MOST_S:
            return
        yield row(trial, STEADY, LONG, seq_len, dtype, batch=1, backward=False)


def stressed(card: Card) -> Iterator[dict[str, str]]:
    """The panel of each form with the usual options, as rows of `checks.verify`."""
    usual_ones = ((label, trial) for label, trial in trials(card) if label.startswith("0-"))
    for label, trial in usual_ones:
        for found in panel(replace(trial, config=card.config(), width=WIDTH)):
            verdict, worst = found["verdict"], found["worst"]
            passed = "passed" if found["passes"] else "failed"
            error = found["errors"].get(worst)
            said = f"{verdict}: error {error:.1e} of {worst}" if worst else found["reason"]
            yield {
                "check": f"{found['part']} {found['inputs']}, N = {found['tokens']:,}",
                "trial": label.removeprefix("0-"),
                "result": "skipped" if verdict == "refused" else passed,
                "reason": said,
            }


def row(
    trial: Trial, part: str, stress: Stress, seq_len: int, dtype: torch.dtype, **how: Any
) -> Row:
    """One row of a panel; `how` is of `compared`.

    It has its `part` (right or steady), `inputs` and `tokens`, and by the name of a tensor the
    `errors`, those of the default form as `rival` (of that one, of `eager`), and what is `allowed`;
    also the `worst` of the names, a `verdict` (passed, fewer digits, imprecise, wrong, not finite,
    refused, failed), its `reason`: what exceeds that, or an exception, and whether it `passes`.
    Raises `NotApplicable` where a form refuses the size, or the stress changes no input.
    """
    mine, ours, reason = compared(trial, stress, seq_len, dtype, **how)
    # sums are longer than in the contract; what has 16 bits errs by rounding its output
    slack = SLACK if dtype.itemsize >= 4 else 1.0
    tolerance = slack * getattr(Tolerance(), str(dtype).removeprefix("torch."))
    allowed = {name: max(tolerance, FACTOR * min(ours.get(name, 0.0), 1.0)) for name in mine}
    worst = max(mine, key=lambda name: mine[name] / allowed[name], default="")
    if mine:
        half = sqrt(torch.finfo(dtype).eps) if part == STEADY else 0.0
        verdict = judged(mine[worst], allowed[worst], half)
        reason = few((name for name in mine if mine[name] > allowed[name]), 3)
    else:
        # few kernels take any length and any number type
        too_large = any(words in reason for words in NO_MEMORY)
        refuses = seq_len < TOKENS or stress.name == BFLOAT16 or too_large
        verdict = "refused" if refuses else "failed"
    return {
        "part": part,
        "inputs": stress.name,
        "tokens": seq_len,
        "errors": mine,
        "rival": ours,
        "allowed": allowed,
        "worst": worst,
        "verdict": verdict,
        "passes": verdict not in BAD,
        "reason": reason,
    }


def compared(
    trial: Trial,
    stress: Stress,
    seq_len: int,
    dtype: torch.dtype,
    batch: int = 2,
    backward: bool = True,
) -> tuple[dict[str, float], dict[str, float], str]:
    """The errors of a form and of its rival, or why the form gives nothing to compare."""
    card, w = trial.card, trial.workload(seq_len, batch)
    names, core = tensor_names(card.forms["eager"]), replace(w, level=Level.CORE)
    if not names or trial.refusal(in_dtype(core, dtype)):
        names, core = LAYER, w
    default = card.usual_form(trial.config, core)
    exact: Any = trial.build(w, form=default)
    inputs = [tokens(w)] if names == LAYER else core_inputs(exact, w)
    ordinary = usual(exact, names, inputs)
    changed = stress.changed(ordinary)
    if stress in STRESSES and all(changed[name] is ordinary[name] for name in names):
        raise NotApplicable(f"no input has {stress.name}")
    if least := getattr(exact, "least_decay", None):
        changed["g"] = changed["g"].clamp(min=least)
    given = {name: rounded(name, tensor, dtype) for name, tensor in changed.items()}
    wide = {name: tensor.double() for name, tensor in given.items()}

    def evaluated(module: Any, tensors: Mapping[str, Tensor]) -> Values:
        leaves = {name: t.clone().requires_grad_(backward) for name, t in tensors.items()}
        with torch.set_grad_enabled(backward):
            y = same_draws(partial(computed, module, leaves))
        # under stress sums over all tokens, as of parameters, cancel
        learned = {} if stress.changes else dict(module.named_parameters())
        return values(learned | leaves, y) if y.requires_grad else Values(y.double().cpu(), {})

    expected = evaluated(exact, wide)

    def attempt(form: str) -> tuple[dict[str, float], str]:
        # what a package's layer computes for itself is not rounded as in `Trial.build`
        module = trial.start(in_dtype(w, dtype), form).eval()
        module.to(find(w.device).torch_name, dtype).load_state_dict(exact.state_dict())
        try:
            found = evaluated(module, given)
            known = expected if found.gradients else Values(expected.output, {})
            return errors(found, known), ""
        except Exception as error:  # a user's function raises anything
            return {}, one_line(error)

    ours, _ = attempt("eager" if trial.form == default else default)
    mine, reason = attempt(trial.form)
    return mine, ours, reason


def rounded(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in the number type that is judged; logs of decays are float32 at least."""
    return tensor.to(torch.float32 if name == "g" and dtype.itemsize < 4 else dtype)


def judged(error: float, allowed: float, half: float) -> str:
    """The verdict on an error, where under stress `half` of the digits may be lost."""
    if error <= allowed:
        return "passed"
    if error <= half:
        return "fewer digits"
    if not isfinite(error):
        return "not finite"
    return "imprecise" if error < ROUNDED else "wrong"
