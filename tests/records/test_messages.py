"""Messages between processes: whatever a process sends becomes its answer or a failure."""

import json
import math
import socket
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnbench.records import Case, Clock, Level, Outcome, Sample, Workload, messages
from attnbench.records.messages import (
    Build,
    Compared,
    Done,
    Failure,
    Finish,
    Finished,
    Hold,
    Lap,
    Lapped,
    Load,
    LoadedForms,
    Loads,
    MeasureMemory,
    Outputs,
    ProcessAnswer,
    ProcessQuestion,
    RunTests,
    Tests,
    Warm,
    Weighed,
    answer_of,
    of_case,
    read_answer,
    read_question,
    written,
)
from attnbench.running import process
from attnbench.running.process import Process

WORKLOAD = Workload(batch=1, seq_len=8, level=Level.ATTENTION)
CASE = of_case(Case(mechanism="linear", form="eager", workload=WORKLOAD))
FIELDS = {
    "batch": 1,
    "seq_len": 8,
    "width": 256,
    "heads": 16,
    "level": "attention",
    "mode": "inference",
    "dtype": "float32",
    "device": "cpu",
    "causal": False,
    "padding": 0.0,
    "shell": None,
    "step": 1,
}
OF_CASE = {"mechanism": "linear", "options": [], "form": "eager", "workload": FIELDS}
SAMPLE = Sample(3, 0.1, 0.1, None, 0.1, 0.0, 0.0, clock=Clock.CPU, waited_s=0.0)
ON_WIRE = [3, 0.1, 0.1, None, 0.1, 0.0, 0.0, None, None, None, "CPU time", 0.0] + 4 * [None]

# what other versions of this package, which measure their own tree, send and understand
QUESTIONS = [
    (Build(**CASE, warmup_s=0.05, inputs_seed=7),
     {"do": "build", **OF_CASE, "warmup_s": 0.05, "inputs_seed": 7}),
    (Build(**CASE | {"form": None}), {"do": "build", **OF_CASE, "form": None}),
    (Build(mechanism="a:b", options=(("n", 1),)),
     {"do": "build", "mechanism": "a:b", "options": [["n", 1]]}),
    (Lap(iterations=3, rehearse=True, left_s=2.5),
     {"do": "lap", "iterations": 3, "rehearse": True, "left_s": 2.5}),
    (Lap(iterations=3), {"do": "lap", "iterations": 3}),
    (Finish(), {"do": "finish"}),
    (MeasureMemory(**CASE, checked=True), {"do": "measure_memory", **OF_CASE, "checked": True}),
    (Outputs(**CASE, path="/x", keeps=False),
     {"do": "outputs", **OF_CASE, "path": "/x", "keeps": False}),
    (Loads(mechanism="linear", device="cpu"),
     {"do": "loads", "mechanism": "linear", "device": "cpu"}),
    (Hold(), {"do": "hold"}),
    (RunTests(), {"do": "tried"}),
]  # fmt: skip
ANSWERS = [
    (Build(**CASE), Warm(iteration_s=0.1, wall_s=0.2),
     {"iteration_s": 0.1, "wall_s": 0.2}),
    (Lap(iterations=3), Lapped(sample=SAMPLE), {"sample": ON_WIRE}),
    (Finish(), Finished(values={"flops": 2.0}, notes={"odd": "x"}, needs_new_process=False),
     {"values": {"flops": 2}, "notes": {"odd": "x"}, "needs_new_process": False}),
    (MeasureMemory(**CASE), Weighed(values={}, case="c", needs_new_process=True),
     {"values": {}, "notes": {}, "case": "c", "needs_new_process": True}),
    (Outputs(**CASE, path="", keeps=True), Compared(drawn=0.5), {"drawn": 0.5}),
    (Outputs(**CASE, path="", keeps=False), Compared(what="x", error=0.5, allowed=0.1),
     {"what": "x", "error": 0.5, "allowed": 0.1}),
    (Loads(mechanism="linear", device="cpu"), LoadedForms(forms=("eager",), files=("a.py",)),
     {"forms": ["eager"], "files": ["a.py"]}),
    (RunTests(), Tests(error="no"), {"error": "no"}),
    (Hold(), Done(), {}),
]  # fmt: skip


@pytest.mark.parametrize(("question", "sent"), QUESTIONS)
def test_a_question_is_sent_as_other_versions_understand_it(question, sent):
    assert json.loads(json.dumps(written(question))) == sent
    assert read_question(json.loads(json.dumps(sent))) == question


@pytest.mark.parametrize(("question", "answer", "sent"), ANSWERS)
def test_an_answer_of_another_version_is_understood(question, answer, sent):
    assert read_answer({"outcome": "ok", **sent}, question) == answer
    assert read_answer({"outcome": "ok", "of_later_versions": 1, **sent}, question) == answer
    ours = json.loads(json.dumps(written(answer)))
    assert read_answer(ours, question) == answer
    assert {"outcome": "ok", **sent}.items() <= ours.items()


def test_a_failure_of_another_version_is_understood():
    failed = read_answer({"outcome": "missing", "reason": "no such form"}, Finish())
    assert failed == Failure(outcome="missing", reason="no such form")
    assert read_answer(json.loads(json.dumps(written(failed))), Finish()) == failed
    loads = Loads(mechanism="linear", device="cpu")
    broken = read_answer({"outcome": "failed", "reason": "no", "files": ["a.py"]}, loads)
    assert broken == Failure(outcome="failed", reason="no", files=("a.py",))


def test_every_question_names_the_class_of_its_answer():
    def kinds(kind):
        yield from (each for sub in kind.__subclasses__() for each in (sub, *kinds(sub)))

    for kind in {*kinds(ProcessQuestion)} - {
        messages.WorkerQuestion,
        messages.AboutCase,
        messages.TimedCase,
    }:
        if kind.__module__ == messages.__name__ and kind is not messages.AboutCards:
            assert issubclass(answer_of(kind), ProcessAnswer)
            assert kind is Load or kind in messages.Known.__args__


def test_numbers_of_numpy_are_sent_as_numbers():
    weighed = Weighed(values={"flops": np.float64(2.5)})
    assert written(weighed)["values"] == {"flops": 2.5}
    with pytest.raises(TypeError, match="cannot hold a object"):
        written(Weighed(values={"flops": object()}))


WRONG = (None, True, math.nan, math.inf, -1, 1e300, 10**400, "3", "", [], [[]], {}, {"a": {}})
plain = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@st.composite
def mutated(draw):
    """A question, with an answer to it in which one thing is something else."""
    question, _, sent = draw(st.sampled_from(ANSWERS))
    data = json.loads(json.dumps({"outcome": "ok", **sent}))
    place = data
    key = draw(st.sampled_from([*place]))
    while isinstance(place[key], (dict, list)) and place[key] and draw(st.booleans()):
        place = place[key]
        key = draw(st.sampled_from([*place] if isinstance(place, dict) else range(len(place))))
    if isinstance(place, dict) and draw(st.booleans()):
        del place[key]
    else:
        place[key] = draw(st.sampled_from(WRONG) | plain)
    return question, data


def asked(sent, question):
    """What a process gives that answers the first question with these bytes, and then ends."""
    ours, theirs = socket.socketpair()
    status, told = socket.socketpair()
    output, printed = socket.socketpair()
    with theirs, told, printed:
        one = Process(lambda: math.inf, 1, status, ours, output)
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        told.sendall(process.STATUS.pack(1, 0, 0))
        with one:
            return one.ask(question, 60.0)


SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def is_answer(answer, question):
    """Whether that is an answer to the question, or a failure that says what is wrong."""
    if isinstance(answer, Failure):
        assert answer.outcome in {*Outcome, "missing"} - {"ok"}
        return isinstance(answer.reason, str)
    return type(answer) is answer_of(type(question))


@SLOW
@given(mutated())
def test_whatever_is_wrong_in_an_answer_is_a_failure_with_its_reason(case):
    question, data = case
    answer = asked(json.dumps([1, data]).encode() + b"\n", question)
    assert is_answer(answer, question)
    if isinstance(answer, Warm):
        assert 0 < answer.iteration_s < math.inf
    if isinstance(answer, Failure) and data.get("outcome") == "ok":
        assert answer.reason.startswith("its process gave an impossible answer: ")


@SLOW
@given(
    st.binary(max_size=64)
    | plain.map(lambda data: json.dumps(data).encode() + b"\n")
    | plain.map(lambda data: json.dumps([1, data]).encode() + b"\n"),
    st.sampled_from([question for question, _, _ in ANSWERS]),
)
def test_whatever_bytes_a_process_sends_are_an_answer_or_a_failure(sent, question):
    assert is_answer(asked(sent, question), question)


@given(st.data())
def test_an_answer_that_ends_early_is_none(data):
    question, _, sent = data.draw(st.sampled_from(ANSWERS))
    line = json.dumps([1, {"outcome": "ok", **sent}]).encode() + b"\n"
    answer = asked(line[: data.draw(st.integers(0, len(line) - 1))], question)
    assert answer.outcome == "crashed"
    assert answer.reason == "the process ended without an answer (exit 0)"


DEEP = b"[" * 100_000 + b"\n"


@pytest.mark.parametrize(
    "sent",
    [b"x\n", b"[2, {}]\n", b"[true, {}]\n", b'[1.0, {"outcome": "ok"}]\n', b"[1, []]\n", DEEP],
)
def test_what_is_no_answer_to_this_question_ends_the_process(sent):
    answer = asked(sent, Finish())
    assert (answer.outcome, answer.reason) == ("crashed", process.FOREIGN)


def test_a_process_that_sends_without_end_does_not_fill_the_memory_of_its_parent(monkeypatch):
    monkeypatch.setattr(process, "LONGEST_ANSWER", 1 << 16)
    answer = asked(b"[1, " + b" " * (1 << 17), Finish())
    assert answer.outcome == "crashed"
    assert answer.reason == "the process sent more than 0 MiB in place of an answer"


def test_notes_and_values_of_a_failure_are_its_own():
    assert Failure(outcome="oom").notes == MappingProxyType({})
    with pytest.raises(ValueError, match="'fine' is no outcome of a failure"):
        Failure(outcome="fine")
