"""What other tools read of a sweep."""

import json

import pytest

from attnbench.analysis.report import analyse
from attnbench.render.exports import bmf
from tests.sweeps import decoded, sweep


def test_bencher_gets_a_value_and_its_interval_for_what_was_measured():
    analysis = analyse(sweep(("fastformer", "transformer"), lengths=(128, 512, 65_536)))
    strict = {"parse_constant": lambda text: pytest.fail(f"{text} is not JSON")}
    found, cases = json.loads(bmf(analysis), **strict), analysis.cases
    one = cases[cases["seq_len"] == 512].iloc[0]
    assert found["fastformer:eager/training/N512"] == {
        "latency": {
            "value": 1e9 * one["time_s"],
            "lower_value": 1e9 * one["time_lo_s"],
            "upper_value": 1e9 * one["time_hi_s"],
        },
        "memory": {"value": one["allocated_peak_bytes"]},
    }
    assert "transformer:eager/training/N65536" not in found
    steps = json.loads(bmf(analyse(decoded({"retention": lambda n: 4096}))))
    assert steps["retention:eager/decode/N128"]["state"]["value"] == 4096
