"""What looks at a mechanism on a GPU keeps its own tensors there, or copies them."""

import pytest
import torch

from attnbench.measuring import noise
from attnbench.measuring.caller import Caller
from attnbench.measuring.causality import leak, with_fixed_draws
from attnbench.measuring.gradients import missing_gradients
from attnbench.measuring.responses import Responses
from attnbench.measuring.subject import subject_of
from attnbench.mechanisms.catalogue import registry
from attnbench.records import Case, Level, Mode, Workload
from tests.doubles.two_devices import two_devices


def looked_at(called):
    """Responses, those beside noise, causality and gradients."""
    responses = Responses(called).findings()
    beside = noise.signs(called, noise.Patience())
    causal = leak(called, with_fixed_draws(called, called.draws()))
    return responses.suspect_signs, beside.suspect_signs, causal, missing_gradients(called)


@pytest.mark.parametrize("padding", [0.0, 0.25])
def test_examinations_mix_no_devices(padding):
    sizes = {"batch": 2, "seq_len": 16, "width": 16, "heads": 4, "padding": padding}
    w = Workload(**sizes, level=Level.ATTENTION, mode=Mode.TRAINING)
    case = Case(mechanism="transformer", form="eager", options=(), workload=w)
    with two_devices():
        called = Caller(subject_of(registry.card("transformer"), case, 0))
        suspect, beside, causal, missing = looked_at(called)
    assert (suspect, beside, missing) == ([], [], [])
    assert causal is not None


def test_tensors_of_two_devices_do_not_meet():
    with two_devices():
        there = torch.ones(3, device="cpu")
        here = torch.arange(3)
        assert there[here].sum() == 3
        assert (there + here.to("cpu")).sum() == 6
        assert (2 * there + there.sum()).sum() == 15
        with pytest.raises(RuntimeError, match="same device"):
            there + here
        with pytest.raises(RuntimeError, match="same device"):
            there.index_select(0, here)
