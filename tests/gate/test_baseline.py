"""The baseline file: the same bytes for the same numbers, and nothing else is taken for one."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.errors import OtherSchema, StoreError
from attnbench.gate.baseline import Baseline, dump, load, parse, save
from tests.cases import CASES

LABEL = "fastformer:eager/B8-N128-D256-H16/attention/inference/float32/cpu/padding=0.3"

numbers = st.integers(0, 2**53) | st.floats(0, 1e15, allow_nan=False)
counts = st.dictionaries(st.sampled_from(["flops", "operators", "parameters"]), numbers)
baselines = st.builds(
    Baseline,
    attnbench=st.text(),
    torch=st.text(),
    cases=st.dictionaries(CASES.map(str), counts, max_size=4),
)


@given(baselines)
def test_a_baseline_comes_back_as_it_was(baseline):
    text = dump(baseline)
    assert parse(text) == baseline
    assert dump(parse(text)) == text


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_what_is_no_baseline_is_refused_in_one_line(text):
    with pytest.raises(StoreError) as refused:
        parse(text)
    assert "\n" not in str(refused.value)


@given(baselines, st.data())
def test_a_damaged_file_is_refused_or_still_a_baseline(baseline, data):
    text = dump(baseline)
    at = data.draw(st.integers(0, len(text) - 1))
    try:
        parse(text[:at] + text[at + 1 :])
    except StoreError:
        return


def test_a_diff_shows_one_number_a_line(tmp_path):
    def made(operators):
        entry = {"operators": operators, "flops": 2.0, "parameters": 3}
        return Baseline(attnbench="0.1", torch="2", cases={LABEL: entry})

    save(made(22), tmp_path / "one.json")
    save(made(23), tmp_path / "two.json")
    one, two = ((tmp_path / f"{name}.json").read_text() for name in ("one", "two"))
    changed = [a for a, b in zip(one.splitlines(), two.splitlines(), strict=True) if a != b]
    assert [line.strip() for line in changed] == ['"operators": 22,']
    assert '"flops": 2,' in one
    assert load(tmp_path / "one.json") == made(22)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.json", "two.json"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 3}, "schema 3; this attnbench reads 2"),
        ({"schema": 1}, "not a baseline: .*schema 1; make one with --save"),
        ({"schema": "1"}, "not a baseline"),
        ({"cases": {"x": {}}}, "'x' does not read as a case"),
        ({"cases": []}, "not a baseline"),
        ({"torch": 2}, "not a baseline: .*torch"),
        ({"cases": {LABEL: {"flops": [1.0]}}}, "not a baseline: .*cases"),
    ],
)
def test_wrong_fields_are_named(change, words):
    good = json.loads(dump(Baseline(attnbench="0.1", torch="2", cases={})))
    with pytest.raises(StoreError, match=words) as refused:
        parse(json.dumps({**good, **change}))
    assert isinstance(refused.value, OtherSchema) == (change == {"schema": 3})


def test_a_number_that_is_none_is_refused():
    for value in ("NaN", "-1", "true", '"1"', "[]", "1e999"):
        text = dump(Baseline(attnbench="0.1", torch="2", cases={LABEL: {}}))
        with pytest.raises(StoreError):
            parse(text.replace(f'"{LABEL}": {{}}', f'"{LABEL}": {{"flops": {value}}}'))


def test_files_that_cannot_be_read_or_written_say_so(tmp_path):
    with pytest.raises(StoreError, match="cannot read the baseline"):
        load(tmp_path / "nothing.json")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StoreError, match="not text"):
        load(tmp_path / "bytes")
    with pytest.raises(StoreError, match="'/dev/zero' is too large for a baseline"):
        load(Path("/dev/zero"))
    with pytest.raises(StoreError, match="cannot write"):
        save(Baseline(attnbench="0", torch="2", cases={}), tmp_path / "no" / "file")
