"""The baseline file: the same bytes for the same numbers, and nothing else is taken for one."""

import json
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from attnbench.commands.check.baseline import Baseline, Saved, as_integer, dump, load, stored_cases
from attnbench.errors import StoreError
from attnbench.records import Case, Level, Workload
from tests.cases import CASES

WORKLOAD = Workload(batch=8, seq_len=128, level=Level.ATTENTION, padding=0.3)
STORED = {"workload": asdict(WORKLOAD), "counts": {}}
LABEL = f"fastformer:eager/{WORKLOAD}"

numbers = st.integers(0, 2**53) | st.floats(0, 1e15, allow_nan=False)
counts = st.dictionaries(st.sampled_from(["flops", "operators", "parameters"]), numbers)
saved = st.tuples(CASES, counts).map(
    lambda both: (str(both[0]), Saved(workload=both[0].workload, counts=both[1]))
)
baselines = st.builds(Baseline, torch=st.text(), cases=st.lists(saved, max_size=4).map(dict))


def made(**counts):
    return Baseline(torch="2", cases={LABEL: Saved(workload=WORKLOAD, counts=counts)})


GOOD = made(operators=22, flops=2, parameters=3)


@given(baseline=baselines, data=st.data())
def test_a_baseline_comes_back_as_it_was_and_a_damaged_one_is_refused(baseline, data, file):
    text = dump(baseline)
    file.write_bytes(text)
    assert load(file) == baseline
    assert dump(load(file)) == text
    at = data.draw(st.integers(0, len(text) - 1))
    file.write_bytes(text[:at] + text[at + 1 :])
    with suppress(StoreError):  # or it is still a baseline
        load(file)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("kept") / "baseline.json"


def test_a_diff_shows_one_number_a_line():
    more = dump(made(operators=23, flops=2, parameters=3))
    lines = zip(dump(GOOD).splitlines(), more.splitlines(), strict=True)
    assert [a.strip() for a, b in lines if a != b] == [b'"operators": 22,']
    assert b'"flops": 2,' in more


def test_counts_are_written_as_whole_numbers():
    assert b'"operators": 22,' in dump(made(operators=as_integer(22.0), flops=2, parameters=3))
    assert as_integer(0.5) == 0.5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 4}, "schema 4, and this attnbench reads 3; make one with --save"),
        ({"schema": "1"}, "not a baseline"),
        ({"cases": []}, "not a baseline"),
        ({"torch": 2}, "not a baseline: .*torch"),
        ({"cases": {LABEL: {**STORED, "counts": {"flops": [1.0]}}}}, "not a baseline: .*cases"),
        *(
            ({"cases": {LABEL: {**STORED, "counts": {"flops": bad}}}}, "cases")
            for bad in (-1, True, "1", None)
        ),
    ],
)
def test_wrong_fields_are_named(change, words, file):
    file.write_text(json.dumps({**json.loads(dump(GOOD)), **change}))
    with pytest.raises(StoreError, match=words):
        load(file)


def test_a_file_that_cannot_be_read_says_so(tmp_path):
    with pytest.raises(StoreError, match="cannot read the baseline"):
        load(tmp_path / "nothing.json")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StoreError, match="is not a baseline"):
        load(tmp_path / "bytes")


@given(CASES)
def test_a_stored_case_is_requested_as_it_was_saved(case):
    if ".py:" in case.mechanism:  # a file must be there
        case = replace(case, mechanism="small.py:CARD")
    kept = Baseline(torch="2", cases={str(case): Saved(workload=case.workload, counts={})})
    (found,) = stored_cases(kept, Path.cwd())
    assert (found.label, found.workload) == (str(case), case.workload)
    asked = found.build_request()
    assert Case(**asked | {"workload": convert(asked["workload"], Workload)}) == case
