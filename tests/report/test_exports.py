"""What other tools read of a sweep."""

import json
from importlib.util import find_spec

import pytest

from attnbench.analysis.report import analyse
from attnbench.report.exports import FORMATS, bmf, files, pyperf
from attnbench.running.request import axes
from tests.commands.commands import python
from tests.sweeps import decoded, sweep

WHOLE = sweep(("fastformer", "transformer"), lengths=(128, 512, 65_536))


def test_bencher_gets_a_value_and_its_interval_for_what_was_measured():
    found, cases = bmf(analyse(WHOLE)), analyse(WHOLE).cases
    one = cases.set_index("case")[lambda rows: rows["seq_len"] == 512].iloc[0]
    assert found["fastformer:eager/training/N512"] == {
        "latency": {
            "value": 1e9 * one["time_s"],
            "lower_value": 1e9 * one["time_lo_s"],
            "upper_value": 1e9 * one["time_hi_s"],
        },
        "memory": {"value": one["allocated_peak_bytes"]},
    }
    assert "transformer:eager/training/N65536" not in found
    steps = bmf(analyse(decoded({"retention": lambda n: 4096})))
    assert steps["retention:eager/decode/N128"]["state"]["value"] == 4096


def test_exports_are_json_of_the_names_that_the_command_line_knows():
    assert tuple(FORMATS) == axes.EXPORTS
    made = files(analyse(WHOLE), ("png", *FORMATS))
    assert list(made) == ["bmf.json", "pyperf.json"]
    strict = {"parse_constant": lambda text: pytest.fail(f"{text} is not JSON")}
    assert all(json.loads(content, **strict) for content in made.values())


def test_pyperf_reads_a_run_of_each_process_and_finds_what_changed(tmp_path):
    found = pyperf(analyse(WHOLE))
    assert {len(each["runs"]) for each in found["benchmarks"]} == {3}
    for name, factor in (("base", 1.0), ("head", 2.0)):
        for each in found["benchmarks"]:
            for run in each["runs"]:
                run["values"] = [factor * value for value in run["values"]]
        (tmp_path / f"{name}.json").write_text(json.dumps(found))
    if find_spec("pyperf") is None:
        pytest.skip("pyperf is not installed")
    done = python("-m", "pyperf", "compare_to", "base.json", "head.json", cwd=tmp_path)
    assert "fastformer:eager/inference/N512" in done.stdout
    assert "2.00x slower" in done.stdout
