"""How long the process that reads cards may take, and whose code it finds."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from attnbench.errors import CannotRun
from attnbench.measuring import reader
from attnbench.measuring.planner import plan
from attnbench.records import Selection
from attnbench.records.messages import (
    Describe,
    Described,
    Failure,
    ReadPlan,
    read_answer,
    written,
)
from attnbench.running.plan import ask
from attnbench.running.request.options import read
from attnbench.running.request.requests import request
from tests.running.sessions import PLAN, REQUEST

FILE = Path(__file__).parents[1] / "measuring" / "exploits.py"


class Slow:
    """A server whose processes need some seconds for an answer."""

    def __init__(self, takes_s):
        self.takes_s = takes_s

    def ask(self, question, limit_s, module):
        in_time = self.takes_s <= limit_s
        return Described(described=({},)) if in_time else Failure(outcome="timeout")


def test_on_a_busy_machine_the_cards_of_the_package_alone_may_take_minutes():
    own = Describe(names=("fastformer", "transformer"), device="cpu")
    assert ask(Slow(300.0), own)
    with pytest.raises(CannotRun, match=r"within 600 s; the machine may be too busy"):
        ask(Slow(900.0), own)
    with pytest.raises(CannotRun, match=r"'mine.py:CARD' could not be read within 30 s; neither"):
        ask(Slow(300.0), Describe(names=("mine.py:CARD",), device="cpu"))


@pytest.mark.parametrize("kind", ["Own", "clean", "Path", "Interrupted", "SweepExists"])
def test_an_error_that_only_a_users_code_knows_is_one_line(kind):
    class Failing:
        def ask(self, question, limit_s, module):
            return Failure(outcome="failed", error=kind, reason="Own: no such head")

    with pytest.raises(CannotRun, match=r"'mine.py:CARD' could not be read: .* Own: no such head"):
        ask(Failing(), Describe(names=("mine.py:CARD",), device="cpu"))


def test_numbers_beyond_any_machine_are_no_plan(monkeypatch):
    beyond = replace(PLAN[0], predicted_bytes=-1)
    monkeypatch.setattr(reader, "plan", lambda selection, request: [beyond])
    question = ReadPlan(names=("fnet",), request=REQUEST, selections=(Selection(name="fnet"),))
    answer = read_answer(reader.CardReader(None).answer(**written(question)), question)
    assert answer.error == "CannotRun"
    assert re.match(r"fnet cannot be planned: Expected .*; ask for smaller", answer.reason)


@pytest.mark.parametrize(
    ("name", "form", "own"),
    [
        ("transformer", "sdpa", True),
        ("transformer", "torch", False),
        (f"{FILE}:Honest", "eager", False),
        ("stack(2*transformer+mamba2)", None, True),
        (f"stack(transformer+{FILE}:Honest)", None, False),
    ],
)
def test_only_code_of_this_package_is_its_own(name, form, own):
    asked = request(read({"models": "transformer", "lengths": "64", "device": "cpu"}))
    cases = plan(Selection(name=name, form=form), asked)
    assert {planned.own for planned in cases} == {own}
