"""Autocast, and types other than the case's, are recorded and never silent."""

import pytest
import torch

from attnbench.catalogue.registry import card
from attnbench.measure.inputs import Iterations
from attnbench.measure.oddities import Examination
from attnbench.measure.subject import subject_of
from attnbench.measure.worker import Worker
from attnbench.records import Level
from tests.measure.cases import EXPLOITS, answered, case, sent


@pytest.fixture(autouse=True)
def autocast_as_it_was():
    yield
    torch.set_autocast_enabled("cpu", False)


def notes_of_a_run(one):
    worker = Worker(None, seed=0)
    answered(worker, "build", **sent(one))
    return worker.answer("finish")["notes"]


def types(one):
    answer = Worker(None, seed=0, measures_memory=True).answer("measure_memory", **sent(one))
    return set(answer["notes"]["number_types"].split(", "))


def test_autocast_within_a_mechanism_is_seen_by_the_types_of_its_results():
    assert types(case(f"{EXPLOITS}:Honest")) == {"float32"}
    assert types(case(f"{EXPLOITS}:LowersPrecision")) == {"bfloat16", "float32"}


def test_autocast_that_a_mechanism_leaves_on_is_a_change():
    notes = notes_of_a_run(case(f"{EXPLOITS}:LeavesAutocastOn"))
    assert notes["changed"] == "autocast off to cpu bfloat16"


def test_an_output_of_another_type_is_a_failure_and_of_a_layer_odd():
    tested = card("transformer")
    level = {"level": Level.MODEL}
    subject = subject_of(tested, case(**level), seed=0)
    inner = subject.module.layers[0].attention
    forward = inner.forward
    inner.forward = lambda x, mask: forward(x, mask).bfloat16()
    output = subject.iteration()(lambda phase: None)
    iterations = Iterations(subject, subject.iteration(), seed=1)
    odd = Examination(subject, seed=0).notes(iterations)["odd"]
    assert odd == "returned torch.bfloat16 for torch.float32"
    assert subject.check(output) == ""
    assert "not torch.float32" in subject.check(output.bfloat16())
