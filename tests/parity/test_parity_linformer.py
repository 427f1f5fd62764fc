"""Linformer against the package `linformer`, with its weights."""

import pytest
import torch

from attnbench.mechanisms.linformer import CARD, Config
from attnbench.records import Level, Workload

package = pytest.importorskip("linformer", reason="the package linformer is not installed")


@pytest.mark.parametrize("form", CARD.forms)
@pytest.mark.parametrize("trained", [24, 31])
def test_it_equals_the_package(form, trained):
    torch.manual_seed(0)
    theirs = package.LinformerSelfAttention(32, trained, k=6, heads=4).double()
    w = Workload(batch=3, seq_len=24, width=32, heads=4, level=Level.ATTENTION)
    ours = CARD.forms[form](Config(rank=6, n_max=trained, bias=True), w).double()
    state = theirs.state_dict()
    zero = torch.zeros(32)
    ours.load_state_dict(
        {
            "E": state["proj_k"].T,
            "F": state["proj_v"].T,
            "query.weight": state["to_q.weight"],
            "query.bias": zero,
            "key.weight": state["to_k.weight"],
            "key.bias": zero,
            "value.weight": state["to_v.weight"],
            "value.bias": zero,
            "output.weight": state["to_out.weight"],
            "output.bias": state["to_out.bias"],
        }
    )
    x = torch.randn(3, 24, 32, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x))
