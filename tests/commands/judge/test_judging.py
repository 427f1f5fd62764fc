"""What of a kernel is raced, and what its race may show."""

from dataclasses import replace

import pandas as pd

from attnbench.commands.judge.judging import comparable_cases, failures, graded_lengths
from attnbench.records import Mode
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
