"""What of a kernel is raced, and what its race may show."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from attnbench.commands.judge.judging import (
    Attempts,
    Judging,
    comparable_cases,
    failures,
    graded_lengths,
    with_lost_gradients,
)
from attnbench.records import KernelFinding, Mode, Outcome, messages
from tests.commands.judge.test_page import found
from tests.sweeps import sweep


def test_training_is_raced_where_gradients_were_compared():
    whole = sweep(("fastformer",), lengths=(512, 2048)).plan
    kept = comparable_cases(whole, frozenset({512}))
    places = {(one.case.workload.mode, one.case.workload.seq_len) for one in kept}
    assert places == {
        (Mode.TRAINING, 512),
        (Mode.INFERENCE, 512),
        (Mode.INFERENCE, 2048),
    }


def test_gradients_count_that_were_compared_in_the_mode_and_at_the_sizes_of_the_race():
    long = replace(found(raced=True, tokens=2048), errors={"output": 1e-7})
    rows = (found(tokens=100), found(raced=True), long, found(raced=True, causal=True, tokens=8192))
    assert graded_lengths(rows, causal=False) == {512}
    assert graded_lengths(rows, causal=True) == {8192}


def test_with_padding_a_length_counts_where_masks_were_compared_too():
    masked = found(raced=True, masked=True, inputs="masked")
    untried = found(KernelFinding.UNTRIED, "it is long", raced=True, masked=True, tokens=2048)
    rows = (found(raced=True), masked, found(raced=True, tokens=2048), untried)
    assert graded_lengths(rows, causal=False) == {512}
    judging = Judging.compared_lengths
    assert judging(None, SimpleNamespace(modes=(False,)), rows) == (512,)


def test_a_failure_in_a_race_is_said_with_its_place():
    cases = pd.DataFrame(
        {
            "mode": ["training", "inference", "inference"],
            "seq_len": [2048, 512, 2048],
            "outcome": ["failed", "ok", "timeout"],
            "reason": ["ValueError: out of workspace", "", "killed"],
        }
    )
    assert [*failures(cases)] == ["training at N = 2,048: ValueError: out of workspace"]


def test_a_length_without_gradients_is_wrong_where_others_have_some():
    lost = replace(found(tokens=2048, raced=True), errors={"output": 1e-7})
    unasked = replace(lost, attempt=replace(lost.attempt, gradients=False))
    untried = found(KernelFinding.UNTRIED, "the budget ended", tokens=8192)
    judged = with_lost_gradients((found(tokens=17), lost, unasked, untried))
    assert [row.passes for row in judged] == [True, False, True, True]
    assert judged[1].finding is KernelFinding.WRONG
    assert judged[1].reason == "no gradients, which it gives as usual, at N = 17"
    assert with_lost_gradients((lost, unasked)) == (lost, unasked), "it has no backward pass"
    attempts = Attempts(SimpleNamespace(left_s=math.inf, fit_s=0.0), SimpleNamespace(attempts=()))
    attempts.rows = [found(tokens=17), lost]
    rows, _ = attempts.make_all()
    assert [row.passes for row in rows] == [True, False]


@pytest.mark.parametrize(
    ("fit_s", "limit_s", "finding"),
    [
        (0.5, 10.0, KernelFinding.NO_ANSWER),
        (15.0, 12.0, KernelFinding.UNTRIED),
        (15.0, 30.0, KernelFinding.NO_ANSWER),
    ],
)
def test_a_kernel_that_compiles_slowly_is_not_said_to_hang(fit_s, limit_s, finding):
    kernel = SimpleNamespace(attempts=())
    attempts = Attempts(SimpleNamespace(left_s=math.inf, fit_s=fit_s), kernel)
    assert attempts.patience_s == max(10.0, 2 * fit_s)
    timeout = messages.Failure(outcome=Outcome.TIMEOUT, reason="killed")
    shown = attempts.row_without_answer(found().attempt, timeout, limit_s)
    assert shown.finding is finding
