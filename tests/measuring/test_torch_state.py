"""Settings of the whole process that a mechanism changed are named, with what they were."""

import pytest
import torch

from attnbench.measuring.torch_state import TorchState


@pytest.fixture
def state():
    before = torch.get_num_threads(), torch.get_default_dtype()
    yield TorchState()
    torch.set_num_threads(before[0])
    torch.set_default_dtype(before[1])


def test_what_is_as_it_was_is_not_named(state):
    torch.set_num_threads(torch.get_num_threads())
    assert state.changes() == ""


@pytest.mark.parametrize(
    ("context", "said"),
    [
        (torch.no_grad, "gradients True to False"),
        (lambda: torch.autocast("cpu", torch.bfloat16), "autocast off to cpu bfloat16"),
        (
            lambda: torch.autograd.set_detect_anomaly(True),
            "detection of anomalies False to True",
        ),
    ],
)
def test_what_a_mechanism_left_on_or_off_is_named(state, context, said):
    with context():
        assert state.changes() == said
    assert state.changes() == ""


def test_several_changes_stand_beside_each_other(state):
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(torch.get_num_threads() + 1)
    dtype, count = state.changes().split("; ")
    assert dtype == "default dtype torch.float32 to torch.float64"
    assert count.startswith("number of threads ")
