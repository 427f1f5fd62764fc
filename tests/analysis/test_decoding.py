"""What follows from steps: rates, states, growth."""

import numpy as np
import pytest

from attnbench.analysis.compare import compare
from attnbench.analysis.report import analyse
from attnbench.records import Mode
from tests.sweeps import decoded, sweep

STATES = {"transformer": lambda n: 2048 * n, "fastformer": lambda n: 4096}


@pytest.fixture(scope="module")
def found():
    return analyse(decoded(STATES))


def test_a_step_gives_one_token_of_each_sequence(found):
    cases = found.cases
    np.testing.assert_allclose(cases["tokens_per_s"] * cases["time_s"], cases["batch"])
    passes = analyse(sweep(("fastformer",), lengths=(128,), modes=(Mode.INFERENCE,))).cases
    np.testing.assert_allclose(passes["tokens_per_s"] * passes["time_s"], passes["tokens"])


def test_a_step_whose_state_is_fixed_does_not_grow(found):
    times = found.exponents[found.exponents["metric"] == "time_s"].set_index("mechanism")
    assert times.loc["fastformer", "exponent"] == pytest.approx(0, abs=0.05)


def test_two_sweeps_differ_in_the_bytes_of_their_states():
    larger = {**STATES, "fastformer": lambda n: 4097}
    sweeps = [analyse(decoded(states, lengths=(128, 512))) for states in (STATES, larger)]
    rows = compare(*sweeps).rows
    states = rows[rows["metric"] == "state_bytes"]
    verdicts = states.groupby("series")["verdict"].unique()
    assert verdicts["transformer:eager"] == ["same"]
    assert verdicts["fastformer:eager"] == ["slower"]
