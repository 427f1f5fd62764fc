"""Decoding as it is measured: exact, without drift, with states counted from their tensors."""

from dataclasses import asdict
from itertools import product

import pytest
import torch
from torch.utils._pytree import tree_leaves

from attnbench.attention.contract import Attention, Unusable
from attnbench.devices.counting import Counter
from attnbench.measuring import subject as measured
from attnbench.measuring.memory_and_counts import relative_error
from attnbench.measuring.subject import subject_of
from attnbench.measuring.worker import Worker
from attnbench.mechanisms.catalogue.presets import group
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Level, Mode
from tests.measuring.cases import answered, case, lapped

# caches, a ring that has turned, a latent, a memory, states, and one with inputs of a convolution
KINDS = (
    ("transformer", "sdpa", ()),
    ("grouped_query", "sdpa", ()),
    ("sliding_window", "blocked", (("sink_tokens", 2), ("window", 8))),
    ("latent", "sdpa", ()),
    ("transformer_xl", "eager", (("memory", 8), ("segment", 8))),
    ("linear_transformer", "eager", ()),
    ("retention", "chunked", ()),
    ("mamba2", "chunked", ()),
)

# with the tokens of a step; those of Transformer-XL take one
STEPS = [(*pair,) for pair in product(KINDS, (1, 3)) if pair != (KINDS[4], 3)]
every_step = pytest.mark.parametrize(("kind", "step"), STEPS, ids=lambda part: str(part)[2:9])


def decoding(mechanism="grouped_query", form="sdpa", options=(), **sizes):
    return case(mechanism, form, options, mode=Mode.DECODE, causal=True, **sizes)


def prefilled(*which, **sizes):
    subject = subject_of(card(which[0] if which else "grouped_query"), decoding(*which, **sizes), 0)
    subject.prefill()
    return subject


@every_step
def test_steps_have_the_digits_of_their_type(kind, step):
    tested, sizes = card(kind[0]), {"seq_len": 50, "step": step}
    assert 1e-9 < relative_error(tested, decoding(*kind, **sizes), seed=1) < 1e-5
    assert relative_error(tested, decoding(*kind, **sizes, dtype="float64"), seed=1) < 1e-12


@every_step
def test_every_iteration_is_the_same_step(kind, step):
    subject = prefilled(*kind, step=step)
    iterate, before = subject.iteration(), subject.with_state({})
    first = iterate(lambda phase: None).clone()
    for _ in range(100):
        last = iterate(lambda phase: None)
        subject.clear()
    assert last.equal(first)
    assert subject.check(last) == ""
    assert subject.with_state({}) == before
    # and it has the last tokens of the whole causal pass
    with torch.no_grad():
        whole = subject.module(torch.cat([subject.prompt, *subject.inputs], 1))
    torch.testing.assert_close(first, whole[:, -step:], rtol=1e-4, atol=1e-5)


def test_memory_that_a_state_keeps_alive_counts_once():
    subject = prefilled()
    module = subject.module
    declared = subject.with_state({})["state_bytes"]
    assert declared == 4 * module.state_elements(module.config, subject.case.workload)
    subject.state = (*subject.state, subject.state[0][:, :1])
    assert subject.with_state({})["state_bytes"] == declared, "a view of what is counted"
    subject.state = (torch.zeros(1000)[:2],)
    assert subject.with_state({})["state_bytes"] == 4000


def test_flops_that_are_not_declared_are_counted(monkeypatch):
    subject = prefilled(batch=3)
    module, w = subject.module, subject.case.workload
    declared = module.step_flops(module.config, w)
    assert "flops" not in subject.with_state({})
    monkeypatch.setattr(type(module), "step_flops", Attention.step_flops)
    assert subject.with_state({})["flops"] == declared.projections + declared.core


@pytest.fixture
def worker():
    return Worker(None, seed=0)


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize(("past", "filled"), [(0, False), (1, False), (39, False), (39, True)])
def test_a_process_times_steps(worker, past, filled, step):
    how = {"suspicious": True, "filled": filled}
    answered(worker, "build", **asdict(decoding(seq_len=past + step, step=step)), **how)
    assert lapped(worker, iterations=3).iterations == 3
    ended = answered(worker, "finish")
    assert not {"odd", "suspect"} & ended["notes"].keys(), ended


@pytest.mark.parametrize("checked", [False, True])
def test_memory_includes_the_prefill_and_counts_a_step(worker, checked):
    values = {}
    for seq_len in (256, 512):
        asked = asdict(decoding(seq_len=seq_len))
        found = answered(worker, "measure_memory", **asked, checked=checked)["values"]
        values[seq_len] = found
        assert "saved_bytes" not in found
        assert found["kept_bytes"] == 0
        assert ("flops" in found) == checked
    short, long = values[256], values[512]
    assert long["state_bytes"] == 2 * short["state_bytes"]
    assert long["operators"] == short["operators"], "a prefill has more the longer it is"
    rows = 512 * 2 * 16 * 4  # of the prompt, in one tensor
    assert long["allocated_delta_bytes"] > long["state_bytes"] + 2 * rows


@pytest.mark.parametrize(
    ("mechanism", "form", "changes", "reason"),
    [
        ("fnet", "eager", {}, "every output is a sum over the whole sequence"),
        ("grouped_query", "compiled", {}, "this form has no step of its own"),
        ("grouped_query", "sdpa", {"level": Level.CORE}, "at level attention"),
        ("grouped_query", "sdpa", {"level": Level.MODEL}, "at level attention"),
        ("grouped_query", "sdpa", {"padding": 0.3}, "without padding"),
        ("grouped_query", "sdpa", {"step": 33}, "33 tokens is longer than the context"),
        ("moba", "eager", {"step": 2}, "takes one token: a query chooses what it reads"),
        ("transformer_xl", "eager", {"step": 2}, "takes one token: tokens of two segments"),
        ("reformer", "eager", {}, "its chunks are cut from all tokens sorted"),
    ],
)
def test_what_cannot_be_decoded_says_why(worker, mechanism, form, changes, reason):
    answer = worker.answer("build", **asdict(decoding(mechanism, form, **changes)))
    assert answer["outcome"] == "unsupported"
    assert answer["reason"].startswith("cannot decode: ")
    assert reason in answer["reason"]


def test_a_prompt_that_gives_nothing_finite_fails(worker, monkeypatch):
    form = card("retention").forms["chunked"]
    monkeypatch.setattr(form, "prefill", lambda self, x, state: (x / 0, state))
    answer = worker.answer("build", **asdict(decoding("retention", "chunked")))
    assert answer["outcome"] == "failed"
    assert answer["reason"] == "after the prompt, output is not finite"


@pytest.mark.parametrize("name", group("@decode"))
def test_a_filled_state_is_like_that_of_a_prompt(name):
    """The same parts with the same counts, all finite, and a step from it works."""
    tested, w = card(name), decoding(name, "eager", seq_len=300).workload
    form = tested.default_form(tested.config(), w)
    of_prompt, of_none = (
        subject_of(tested, decoding(name, form, seq_len=300), 0, filled=filled)
        for filled in (False, True)
    )
    of_prompt.prefill()
    assert of_none.prefill() is None
    assert of_none.prompt.shape[1] < of_prompt.prompt.shape[1]
    pairs = list(zip(tree_leaves(of_none.state), tree_leaves(of_prompt.state), strict=True))
    for part, expected in pairs:
        if not isinstance(part, torch.Tensor):
            assert part == expected
            continue
        assert (part.shape, part.dtype) == (expected.shape, expected.dtype)
        assert part.isfinite().all()
        # sums over tokens grow with them, and the last slot is still empty
        known = expected[expected.isfinite()]
        if len(known):
            spread = known.std(correction=0)
            assert spread / 30 <= part.std(correction=0) <= 30 * spread
    assert of_none.check(of_none.iteration()(lambda phase: None)) == ""
    assert of_none.with_state({}) == of_prompt.with_state({})


def test_a_large_part_of_a_state_repeats_its_first_numbers(monkeypatch):
    monkeypatch.setattr(measured, "DRAWN", 100)
    subject = subject_of(card("grouped_query"), decoding(seq_len=300), 0, filled=True)
    subject.prefill()
    first, second, *_ = subject.state[0].flatten().split(100)
    assert torch.equal(first, second)
    assert len(first.unique()) > 50


def test_a_state_of_one_token_is_empty_and_another_structure_is_refused(monkeypatch):
    subject = subject_of(card("grouped_query"), decoding(seq_len=1), 0, filled=True)
    assert subject.prefill() is None
    assert subject.state.length == 0
    subject = subject_of(card("grouped_query"), decoding(seq_len=300), 0, filled=True)
    monkeypatch.setattr(type(subject.module), "prefill", lambda self, x, state: (x, (x,)))
    with pytest.raises(Unusable, match="cannot be filled; --no-fill"):
        subject.prefill()


@every_step
def test_a_step_from_a_filled_state_does_the_same_work_as_one_from_that_of_a_prompt(kind, step):
    done = []
    for filled in (False, True):
        subject = subject_of(
            card(kind[0]), decoding(*kind, seq_len=70, step=step), 0, filled=filled
        )
        subject.prefill()
        iterate = subject.iteration()
        iterate(lambda phase: None)
        with Counter() as counter:
            iterate(lambda phase: None)
        done.append((counter.values, counter.notes))
        numbers = [t for t in tree_leaves(subject.state) if isinstance(t, torch.Tensor)]
        floats = [t.abs() for t in numbers if t.is_floating_point()]
        assert not any(((t > 0) & (t < torch.finfo(t.dtype).tiny)).any() for t in floats)
    assert done[0] == done[1]


def test_a_filled_state_is_weighed_without_a_prompt(worker):
    asked = asdict(decoding(seq_len=300))
    values, whole = (
        worker.answer("measure_memory", **asked, filled=f)["values"] for f in (True, False)
    )
    assert whole["state_bytes"] == values["state_bytes"]
    assert whole["allocated_peak_bytes"] > values["allocated_peak_bytes"]
