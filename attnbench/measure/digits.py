"""What a form costs in digits: its output against the equations as written, in float64."""

from dataclasses import replace

import torch

from attnbench.contract import Card
from attnbench.device import find
from attnbench.records import Case, Level, Mode

SLICE = 128  # tokens of one sequence, so that the float64 run is cheap at any length


def error(its: Card, case: Case, seed: int) -> float | None:
    """‖y − y₆₄‖ / ‖y₆₄‖ of one short sequence, or None where the form refuses to be that short.

    y₆₄ is the output of the form `eager` (which the contract holds to the reference) in float64,
    with the same rounded parameters, input and draws: the error is that of computing, and where
    rounding changes a discrete choice, of the choice too.
    """
    w = case.workload
    short = replace(
        w,
        batch=1,
        seq_len=min(w.seq_len, SLICE),
        level=Level.ATTENTION,
        mode=Mode.INFERENCE,
        padding=0.0,
        shell=None,
    )
    config = its.configure(dict(case.options))
    if its.refusal(case.form, config, short) or its.refusal("eager", config, short):
        return None
    dtype, device = getattr(torch, w.dtype), find(w.device).torch_name
    torch.manual_seed(seed)
    module = its.forms[case.form](config, short).to(device, dtype).eval()
    exact = its.forms["eager"](config, short).to(device, dtype).eval()
    exact.load_state_dict(module.state_dict())
    exact.double()
    x = torch.randn(1, short.seq_len, w.width).to(device, dtype)
    with torch.no_grad():
        torch.manual_seed(seed)
        y = module(x).double()
        torch.manual_seed(seed)
        expected = exact(x.double())
    return float((y - expected).norm() / expected.norm())
