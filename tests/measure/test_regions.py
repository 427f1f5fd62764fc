"""A module with marks between its parts computes as ever, and each part is blamed for its own."""

from collections import Counter as Counts
from dataclasses import replace

import pytest
import torch

from attnbench.catalogue.registry import card
from attnbench.devices.counting import Counter
from attnbench.measure.building import subject_of
from attnbench.measure.regions import Regions, Worker
from attnbench.records import Level, Mode, Region
from tests.measure.cases import answered, case, sent

SLOW = 400  # operators: more than all others of a small module
MECHANISMS = ("gated_delta_net", "transformer", "fastformer", "fnet", "stack(local+mamba2)")


def usual(mechanism, **sizes):
    """A case of the mechanism in its usual form, with its card."""
    one = card(mechanism)
    first = case(mechanism, **({"causal": True} if "stack" in mechanism else {}), **sizes)
    form = one.usual_form(one.configure({}), first.workload)
    return one, replace(first, form=form)


def blamed(one, of):
    """How many operators each region ran in an iteration, and the output."""
    subject = subject_of(one, of, seed=0)
    subject.prefill()
    regions, found, before = Regions(subject), Counts(), 0
    with Counter() as counter:

        def lap(region):
            nonlocal before
            found[region] += counter.operators - before
            before = counter.operators

        with regions.placed():
            output = regions.timed(subject.iteration())(lap)
    assert found.total() == counter.operators, "every operator is in a region"
    gradients = [p.grad for p in subject.parameters if p.grad is not None]
    return regions.named(found), [output, *gradients]


@pytest.mark.parametrize("mode", [Mode.INFERENCE, Mode.TRAINING])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_marks_change_nothing(mechanism, mode):
    one, of = usual(mechanism, mode=mode, level=Level.MODEL)
    _, marked = blamed(one, of)
    subject = subject_of(one, of, seed=0)
    output = subject.iteration()(lambda phase: None)
    plain = [output, *(p.grad for p in subject.parameters if p.grad is not None)]
    for ours, theirs in zip(marked, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def planted(method, mechanism="gated_delta_net"):
    """The card with a method of its usual form that computes much more than it needs."""
    one, of = usual(mechanism)
    form = one.forms[of.form]

    def slow(self, x, *args, **kwargs):
        for _ in range(SLOW):
            x = x * 1
        return getattr(form, method)(self, x, *args, **kwargs)

    return replace(one, forms={**one.forms, of.form: type("Slow", (form,), {method: slow})})


@pytest.mark.parametrize("mode", [Mode.INFERENCE, Mode.TRAINING])
@pytest.mark.parametrize(
    ("mechanism", "method", "region"),
    [
        ("gated_delta_net", "convolve", Region.CONVOLUTION),
        ("gated_delta_net", "scan", Region.CORE),
        ("gated_delta_net", "extend", Region.GATES),
        ("transformer", "attend", Region.CORE),
        ("transformer", "finished", Region.GATES),
        ("fnet", "forward", Region.CORE),
    ],
)
def test_a_slow_part_is_blamed(mechanism, method, region, mode):
    one, of = usual(mechanism, mode=mode)
    before, _ = blamed(one, of)
    after, _ = blamed(planted(method, mechanism), of)
    more = {name: after[name] - before.get(name, 0) for name in after}
    assert more.pop(region) >= SLOW
    if mode is Mode.TRAINING:  # and in the backward pass too
        assert after[region] - before[region] >= 2 * SLOW - 2
    assert all(abs(count) <= 1 for count in more.values()), more


def test_projections_are_those_of_functions_too():
    one, of = usual("fastformer")
    found, _ = blamed(one, replace(of, form="eager"))
    assert found[Region.PROJECTIONS] == 3, "W_Q, which is W_V too, W_K and W_R"


def test_a_step_has_parts():
    one, of = usual("transformer", mode=Mode.DECODE, batch=1, causal=True)
    found, _ = blamed(one, of)
    assert found[Region.PROJECTIONS] == 4
    assert found[Region.CORE] > 0


@pytest.mark.parametrize(("mechanism", "lumped"), [("fnet", True), ("gated_delta_net", False)])
def test_the_parts_of_each_lap_add_up(mechanism, lumped):
    _, of = usual(mechanism, level=Level.MODEL)
    worker = Worker(None, seed=0)
    answered(worker, "build", **sent(of))
    answered(worker, "lap", iterations=2)
    took_s = worker.built.watch.cpu_s / 2  # of the lap with marks, which came last
    answered(worker, "lap", iterations=2)
    done = answered(worker, "finish")
    assert len(done["regions"]) == 2
    assert sum(done["regions"][0].values()) == pytest.approx(took_s)
    assert done["operators"].keys() <= set(Region)
    assert done["lumped"] is lumped
    assert done["launch_s"] > 0
