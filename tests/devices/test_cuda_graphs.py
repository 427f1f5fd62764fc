"""Iterations captured and replayed on an emulated GPU, which repeats the captured operators."""

import pytest
import torch

from attnbench.devices.cuda_graphs import captured
from attnbench.measuring.subject import subject_of
from attnbench.measuring.worker import Worker
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import PASSES, Level, Mode
from tests.measuring.cases import answered, case, lapped, sent

pytestmark = pytest.mark.usefixtures("emulated_gpu")


def subject(tested):
    return subject_of(card(tested.mechanism), tested, seed=0)


def build(worker, tested, **asked):
    return worker.answer("build", **sent(tested), **asked)


@pytest.mark.parametrize("level", [Level.ATTENTION, Level.CORE])
def test_a_replay_computes_what_the_iteration_computes_of_its_inputs_now(level):
    tested = case("fastformer" if level is Level.ATTENTION else "transformer", level=level)
    replayed, eager = subject(tested), subject(tested)
    replay = captured(replayed)
    for _ in range(2):
        assert torch.equal(replay(lambda phase: None), eager.iteration()(lambda phase: None))
        replayed.inputs[0].mul_(2)
        eager.inputs[0].mul_(2)


@pytest.mark.parametrize("mode", PASSES)
def test_gradients_are_recorded_in_training_alone(mode):
    one, seen = subject(case(mode=mode)), set()
    forward = one.forward

    def watched():
        seen.add(torch.is_grad_enabled())
        return forward()

    one.forward = watched
    captured(one)
    assert seen == {mode is Mode.TRAINING}


def test_replays_train_like_iterations():
    tested = case("linformer", mode=Mode.TRAINING, seq_len=16)
    replayed, eager = subject(tested), subject(tested)
    phases = []
    replay = captured(replayed)
    for _ in range(3):
        replay(phases.append)
    assert phases == ["forward", "backward", "step"] * 3
    iterate = eager.iteration()
    for _ in range(3 + 1 + 3):  # the warm-up, the capture (here it computes), and the replays
        eager.clear()
        iterate(lambda phase: None)
    for a, b in zip(replayed.parameters, eager.parameters, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_an_iteration_that_waits_for_the_device_is_unsupported_with_the_reason():
    worker = Worker(None, seed=0)
    tested = case("adaptively_sparse", seq_len=16, device="cuda")
    answered(worker, "build", **sent(tested))
    answer = build(worker, tested, cuda_graphs=True)
    assert answer["outcome"] == "unsupported"
    assert answer["reason"] == (
        "a CUDA graph cannot capture it: RuntimeError: CUDA error:"
        " operation not permitted when stream is capturing"
    )


@pytest.mark.parametrize("mechanism", ["indexed", "moba", "native_sparse"])
def test_a_step_that_reads_chosen_blocks_does_not_wait_for_the_device(mechanism):
    tested = case(mechanism, mode=Mode.DECODE, causal=True, device="cuda")
    answered(Worker(None, seed=0), "build", **sent(tested), cuda_graphs=True)


def test_a_worker_times_replays():
    worker = Worker(None, seed=0)
    tested = case("fastformer", mode=Mode.TRAINING, device="cuda")
    answered(worker, "build", **sent(tested), cuda_graphs=True, suspicious=True)
    watched = worker.built.subject.module.register_forward_hook(lambda *_: pytest.fail("ran"))
    taken = lapped(worker, iterations=3, rehearse=True)
    watched.remove()
    assert taken.iterations == 3
    assert taken.device_s > 0
    assert min(taken.forward_s, taken.backward_s, taken.step_s) > 0
    assert taken.enqueue_s > 0
    assert "odd" not in answered(worker, "finish")["notes"]


@pytest.mark.parametrize(("rate", "dearer"), [(0.2, True), (1000.0, False)])
def test_an_iteration_costs_what_hiding_its_launches_takes(monkeypatch, rate, dearer):
    """By the time of the GPU alone, launch-bound cases would run many times too long."""
    monkeypatch.setenv("EMULATED_CUDA_RATE", str(rate))
    worker = Worker(None, seed=0)
    answer = build(worker, case(device="cuda"), warmup_s=0.01)
    assert worker.built.watch.hides_launches == dearer
    assert (answer["iteration_s"] > 2 * worker.built.iteration_s) == dearer
    worker.answer("finish")
