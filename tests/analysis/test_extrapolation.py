"""Costs that were not measured, beside those that were."""

import math
from dataclasses import replace

import pytest

from attnbench.analysis.extrapolation import predictions
from attnbench.records import Mode, Outcome, Part, metrics
from tests import sweeps

TIME, PEAK = metrics.PREDICTED.values()
LENGTHS = (128, 256, 512, 1024)


def all_but(seq_len, part=None, outcome=None):
    """A sweep of one mechanism without the runs of its longest case, or with another outcome."""
    whole = sweeps.sweep(("fastformer",), lengths=LENGTHS, modes=(Mode.INFERENCE,))
    key = next(line.case.key for line in whole.plan if line.case.workload.seq_len == seq_len)
    runs = []
    for run in whole.runs:
        if run.case != key or part not in (None, run.part):
            runs.append(run)
        elif outcome is not None:
            runs.append(replace(run, outcome=outcome, samples=(), values={}))
    times = {
        line.case.key: sweeps.seconds("fastformer", line.case.workload)
        for line in whole.plan
        if line.case.key != key or part is Part.MEMORY
    }
    return whole, key, predictions(whole.plan, runs, times, None)


def test_what_was_measured_is_not_predicted():
    _, key, found = all_but(1024)
    for case, columns in found.items():
        assert math.isnan(columns[TIME]) is (case != key)
        assert math.isnan(columns[PEAK]) is (case != key)


def test_a_prediction_follows_the_costs_of_the_series():
    whole, key, found = all_but(1024)
    w = next(line.case.workload for line in whole.plan if line.case.key == key)
    assert found[key][TIME] == pytest.approx(sweeps.seconds("fastformer", w), rel=0.2)
    assert found[key][PEAK] == pytest.approx(sweeps.peak_bytes("fastformer", w), rel=0.2)


def test_where_only_its_memory_was_not_measured_that_alone_is_predicted():
    _, key, found = all_but(1024, Part.MEMORY)
    assert math.isnan(found[key][TIME])
    assert found[key][PEAK] > 0


def test_of_what_cannot_run_nothing_is_predicted():
    _, key, found = all_but(1024, outcome=Outcome.UNSUPPORTED)
    assert key not in found
    assert len(found) == len(LENGTHS) - 1
    whole = sweeps.sweep(("fastformer",), lengths=(128,), modes=(Mode.INFERENCE,))
    refused = [replace(line, refusal="too short") for line in whole.plan]
    assert predictions(refused, (), {}, None) == {}


def test_of_an_undeclared_module_a_few_lengths_tell_nothing():
    whole = sweeps.sweep(("fastformer",), lengths=LENGTHS, modes=(Mode.INFERENCE,))
    plan = [replace(line, declared=False) for line in whole.plan]
    times = {plan[0].case.key: 1.0, plan[1].case.key: 2.0}
    runs = [run for run in whole.runs if run.case in times]
    found = predictions(plan, runs, times, None)
    assert all(math.isnan(value) for columns in found.values() for value in columns.values())
