"""Forms of torch's own layer."""

from dataclasses import replace
from importlib.metadata import version

import pytest
import torch

from attnbench.measuring.worker import Worker
from attnbench.mechanisms.catalogue import registry
from attnbench.mechanisms.peers import Packed
from attnbench.records import Case, Level, Outcome, Workload
from tests.measuring.cases import sent

W = Workload(batch=1, seq_len=32, width=16, heads=4, level=Level.ATTENTION)


def test_layers_save_what_eager_saves():
    config, forms = (
        registry.card("transformer").config(bias=True),
        registry.card("transformer").forms,
    )
    theirs, ours = forms["torch"](config, W), forms["eager"](config, W)
    assert theirs.state_dict().keys() == ours.state_dict().keys()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(1, 32, 16)
    torch.testing.assert_close(theirs(x), ours(x))
    with pytest.raises(RuntimeError, match="Missing key"):
        theirs.load_state_dict({})
    inside = torch.nn.Sequential(theirs)
    assert {key.partition(".")[2] for key in inside.state_dict()} == ours.state_dict().keys()
    inside.load_state_dict(inside.state_dict())


@pytest.mark.parametrize("padding", [0.0, 0.5])
@pytest.mark.parametrize("causal", [False, True])
def test_the_worker_counts_and_notes(padding, causal):
    w = Workload(**{**vars(W), "padding": padding, "causal": causal})
    case = Case(mechanism="transformer", form="torch", workload=w)
    found = Worker(None, seed=0).answer("measure_memory", **sent(case))
    assert found["outcome"] == Outcome.OK, found
    assert found["notes"]["package"] == f"torch {version('torch')}"
    assert found["values"]["error"] < 1e-5


@pytest.mark.filterwarnings("ignore")  # of torch, about masks of two kinds
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_its_output_is_that_of_the_mechanism(masked, causal):
    card, w = registry.card("transformer"), replace(W, causal=causal)
    torch.manual_seed(0)
    ours, theirs = (card.forms[form](card.config(), w).eval() for form in ("eager", "torch"))
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 32, 16)
    mask = torch.arange(32).expand(2, -1) < torch.tensor([[32], [20]]) if masked else None
    found, expected = theirs(x, mask), ours(x, mask)
    torch.testing.assert_close(found[0], expected[0])
    torch.testing.assert_close(found[1, :20], expected[1, :20])


def test_maps_are_put_together_once_and_again_when_one_is_written_to():
    maps = [torch.nn.Linear(4, size) for size in (4, 2)]
    packed = Packed(*maps)
    x = torch.randn(3, 4)
    with torch.no_grad():
        first = packed.weight
        assert packed.weight is first
        assert packed.bias is packed.bias
        maps[1].weight.mul_(2.0)
        assert packed.weight is not first
        torch.testing.assert_close(packed(x), torch.cat([one(x) for one in maps], -1))
    packed(x).sum().backward()
    assert all(one.weight.grad.abs().min() > 0 for one in maps)
    packed.double()
    with torch.no_grad():
        assert packed(x.double()).dtype == torch.float64
