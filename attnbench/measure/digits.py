"""The numerical error of a form: its output against the equations as written, in float64."""

from dataclasses import replace

import torch

from attnbench.attention.card import Card
from attnbench.devices.finding import find
from attnbench.measure.subject import SUBJECTS
from attnbench.records import Case, Workload


def relative_error(card: Card, case: Case, seed: int) -> float | None:
    """‖y − y₆₄‖ / ‖y₆₄‖ of `case.slice`, or None if the form cannot run at that length or deviates
    from the equations.

    y₆₄ is the output of the form `eager` (which the contract's checks compare with the reference)
    in float64, with the same rounded parameters, input and random draws: the error is that of the
    arithmetic, including discrete choices that rounding changes. In decode the end of the sequence
    is computed step by step.
    """
    w = case.slice.workload
    short = replace(w, mode=Workload.mode)
    config = card.configure(dict(case.options))
    if card.refusal(case.form, config, short) or card.refusal("eager", config, short):
        return None
    form = card.forms[case.form]
    if form.deviation:
        return None
    dtype, device = getattr(torch, w.dtype), find(w.device).torch_name
    torch.manual_seed(seed)
    module, exact = form(config, short), card.forms["eager"](config, short)
    module, exact = module.to(device, dtype).eval(), exact.to(device, dtype).eval()
    exact.load_state_dict(module.state_dict())
    exact.double()
    x = torch.randn(1, short.seq_len, w.width).to(device, dtype)
    with torch.no_grad():
        torch.manual_seed(seed)
        y = SUBJECTS[w.mode].sequence(module, x).double()
        torch.manual_seed(seed)
        expected = exact(x.double())
    return float((y - expected).norm() / expected.norm())
