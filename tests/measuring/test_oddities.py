"""What an examination says of iterations that ran."""

import pytest

from attnbench.measuring.built import UNEXAMINED
from attnbench.measuring.inputs import Iterations, some_numbers
from attnbench.measuring.oddities import Examination, IterationTimes
from attnbench.measuring.subject import subject_of
from attnbench.measuring.worker import Worker
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Level, Mode
from attnbench.records.modes import EXAMINED_CALLS, EXAMINED_ITERATIONS
from tests.measuring.cases import EXPLOITS, answered, case, sent


def without_laps(one, **asked):
    """The notes of a run that ends after its warm-up."""
    worker = Worker(None, seed=0)
    answered(worker, "build", suspicious=True, **sent(one))
    return answered(worker, "finish", **asked)["notes"]


def test_what_the_budget_does_not_allow_is_not_looked_for_and_that_is_said():
    found = without_laps(case(f"{EXPLOITS}:Zeros"), left_s=0.0)
    assert found["unexamined"] == UNEXAMINED
    assert not {"odd", "suspect"} & found.keys()


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("batch", [1, 3])
def test_it_calls_a_usual_module_as_often_as_its_time_allows_for(mode, batch):
    worker = Worker(None, seed=0)
    one = sent(case(mode=Mode(mode), batch=batch, seq_len=512))
    answered(worker, "build", suspicious=True, **one)
    answered(worker, "lap", iterations=2)
    calls = []
    worker.built.subject.module.register_forward_pre_hook(lambda *call: calls.append(call))
    notes = answered(worker, "finish")["notes"]
    assert notes["examined"]
    assert len(calls) <= EXAMINED_CALLS + EXAMINED_ITERATIONS
    if (mode, batch) == ("inference", 1):
        assert len(calls) > (EXAMINED_CALLS + EXAMINED_ITERATIONS) / 2, "more at longer lengths"


def test_one_that_fails_on_fresh_input_is_reported_and_its_run_stays():
    found = without_laps(case(f"{EXPLOITS}:OnceOnly"))
    assert found["odd"] == "failed when it was called again, with RuntimeError"


def test_an_output_of_another_type_is_a_failure_and_of_a_layer_odd():
    one = subject_of(card("transformer"), case(level=Level.MODEL), seed=0)
    inner = one.module.layers[0].attention
    forward = inner.forward
    inner.forward = lambda x, mask: forward(x, mask).bfloat16()
    output = one.iteration()(lambda phase: None)
    iterations = Iterations(one, one.iteration(), seed=1)
    odd = Examination(one, seed=0).notes(iterations)["odd"]
    assert odd == "returned torch.bfloat16 for torch.float32"
    assert one.check(output) == ""
    assert "not torch.float32" in one.check(output.bfloat16())


@pytest.mark.parametrize(
    ("first_s", "warm_s", "times"),
    [
        (0.01, [0.01] * 5, 0.0),
        (0.01, [0.01, 0.04, 0.05, 0.04, 0.01], 4.0),
        (0.01, [0.05, 0.05], 0.0),  # too few to compare
        (0.09, [0.01] * 5, 0.0),  # the first also makes what others reuse
        (0.2, [0.01] * 5, 20.0),
        (0.105, [0.01] * 5, 0.0),
    ],
)
def test_iterations_that_did_other_work_at_first_took_much_longer(first_s, warm_s, times):
    found = IterationTimes(first_s=first_s, warm_s=warm_s, laps_s=[0.01, 0.01, 9.0])
    assert found.slow_start() == pytest.approx(times)
    assert IterationTimes(first_s=first_s, warm_s=warm_s).slow_start() == 0.0


def examined(change, mode="inference", laps_s=(1.0,), once_s=None):
    """What an examination says of softmax attention once `change` was made of its module."""
    one = subject_of(card("transformer"), case(mode=mode), seed=0)
    iterations = Iterations(one, one.iteration(), seed=1, examined=True)
    examination = Examination(one, seed=0)
    examination.times.laps_s = [*laps_s]
    iterations.prepare(1)
    iterations.clear()
    iterations(lambda phase: None)
    examination.last = some_numbers(iterations.output)
    change(one, iterations)
    return examination.notes(iterations, once_s)


def test_what_did_its_work_has_no_sign():
    found = examined(lambda one, iterations: None, once_s=lambda: 1.0)
    assert (found["suspect"], found["odd"], found["causal"]) == ("", "", "")
    assert found["examined"] == "inference, N = 32"


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (
            lambda one, iterations: iterations.output.add_(1),
            "suspect",
            "changed its output after it had returned it",
        ),
        (
            lambda one, iterations: one.parameters[0].requires_grad_(False),
            "odd",
            "switched off the gradients of 1 of its parameters",
        ),
        (
            lambda one, iterations: one.module.train(),
            "odd",
            "switched between training and evaluation",
        ),
    ],
)
def test_what_became_of_a_subject_is_seen_from_outside(change, kind, said):
    found = examined(change)
    assert found[kind] == said
    assert found[{"suspect": "odd", "odd": "suspect"}[kind]] == ""


@pytest.mark.parametrize(("took_s", "said"), [(2.9, ""), (4.0, "took 4 times as long once")])
def test_an_iteration_with_other_parameters_takes_as_long_as_laps(took_s, said):
    found = examined(lambda one, iterations: None, once_s=lambda: took_s)
    assert found["suspect"].startswith(said)
    assert bool(found["suspect"]) == bool(said)
