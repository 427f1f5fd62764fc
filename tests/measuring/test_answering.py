"""How a worker turns questions into calls, and what it raises into failures."""

import os

import pytest

from attnbench.errors import UsageError
from attnbench.measuring import answering
from attnbench.measuring.answering import Answering, failure
from attnbench.measuring.server import Unmeasured
from attnbench.measuring.worker import Worker


def test_the_reason_of_a_failure_is_the_first_line_of_its_error():
    class NoHead(ValueError):
        outcome = "ok"  # a user's exception decides nothing

    class Broken(Worker):
        def lap(self, question):
            raise NoHead("\nno such head\nthe heads are 0 to 3\n")

    answer = Broken(None, seed=0).answer("lap", iterations=1)
    assert (answer["outcome"], answer["reason"]) == ("failed", "NoHead: no such head")


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (Unmeasured("unsupported", "it has no core"), "unsupported", "it has no core"),
        (UsageError("width 7\nis odd"), "failed", "width 7"),
        (MemoryError("8 GiB"), "oom", "MemoryError: 8 GiB"),
        (SystemExit(3), "failed", "SystemExit: 3"),
        (KeyError(), "failed", "KeyError"),
    ],
)
def test_what_an_exception_means_follows_from_its_class(error, outcome, reason):
    found = failure(error)
    assert (found.outcome, found.reason) == (outcome, reason)


def test_a_question_is_answered_by_the_method_of_its_name():
    class Asked(Answering):
        def lap(self, question):
            raise Unmeasured("missing", f"asked for {question.iterations}")

    answer = Asked().answer("lap", iterations=7)
    assert (answer["outcome"], answer["reason"]) == ("missing", "asked for 7")
    assert Asked().answer("lap", iterations="many")["outcome"] == "failed"
    assert Asked().answer("finish")["reason"].startswith("AttributeError: ")


def test_files_are_those_that_are_nobodys_package():
    found = Answering().answer("files")
    assert os.path.realpath(answering.__file__) in found["modules"]
    assert os.path.realpath(pytest.__file__) not in found["modules"]
    watched = os.path.realpath(pytest.__file__)
    assert watched in Answering().answer("files", watched=[watched])["modules"]
