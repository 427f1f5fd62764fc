"""`sweep --trace`: which case is meant, and what is written of it."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest

from attnbench.commands.sweeping.planning import trace
from attnbench.errors import CannotRun, UsageError
from attnbench.records import Mode, Settings
from attnbench.records.messages import Failure
from tests.commands.commands import here
from tests.running.sessions import PLAN, REQUEST, planned

SWEEP = (
    *("sweep", "--models", "fastformer,transformer:eager", "--lengths", "16", "--tokens", "64"),
    *("--width", "32", "--heads", "2", "--threads", "1", "--quick", "--device", "cpu"),
)
LOW = planned("low", 512, 1)
LOW = replace(LOW, case=replace(LOW.case, options=(("rank", 64),)))
ALL = (
    *PLAN,
    planned("slow", 512, 1, form="sdpa"),
    LOW,
    planned("slow", 128, 1, mode=Mode.TRAINING),
)


class Refusing:
    """A pool of one process, which fails whatever it is asked, and keeps its questions."""

    def __init__(self, folder):
        self.folder = folder
        self.questions = []

    def process(self, limit_bytes):
        return nullcontext(self)

    def ask(self, question, limit_s):
        self.questions.append(question)
        return Failure(outcome="failed", reason="no")


@pytest.mark.parametrize(
    ("wanted", "form", "seq_len"),
    [
        ("fast/inference/256", "eager", 256),
        ("slow:sdpa/inference/512", "sdpa", 512),
        ("low:eager[rank=64]/inference/512", "eager", 512),
        (str(PLAN[0].case), "eager", 128),
    ],
)
def test_a_case_is_named_as_briefly_as_is_clear(wanted, form, seq_len, tmp_path):
    """And its iteration is the one that a sweep would time."""
    server = Refusing(tmp_path)
    request = replace(REQUEST, settings=Settings(cuda_graphs=True, warmup_s=0.5))
    with pytest.raises(CannotRun, match="failed: no"):
        trace(wanted, ALL, request, server, None)
    (question,) = server.questions
    assert (question.form, question.workload.seq_len) == (form, seq_len)
    assert (question.cuda_graphs, question.warmup_s) == (True, 0.5)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("slow", "means 0 cases; write one, such as slow/inference/128, slow/inference/256, "),
        ("slow/inference/512", "means 2 cases; write one, such as slow:eager/inference/512, "),
    ],
)
def test_what_is_not_one_case_is_refused(wanted, said):
    with pytest.raises(UsageError, match=said):
        trace(wanted, ALL, REQUEST, None, None)


def test_a_trace_is_written(tmp_path):
    done = here(*SWEEP, "--out", tmp_path / "out", "--trace", "fastformer/training/16")
    (file,) = (tmp_path / "out").iterdir()
    assert f"the trace is {file};" in "".join(done.stderr.split("\n"))
    events = {event.get("name") for event in json.loads(file.read_text())["traceEvents"]}
    assert "aten::mm" in events
