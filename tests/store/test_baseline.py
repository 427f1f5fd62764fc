"""The baseline file: the same bytes for the same numbers, and nothing else is taken for one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.errors import NewerSchema, StoreError
from attnbench.records import Case, Level, Mode, Workload
from attnbench.store.baseline import (
    Baseline,
    Entry,
    Machine,
    Timing,
    dump,
    load,
    parse,
    save,
    workload_of,
)

MACHINE = Machine(processor="A 1", cores=2, threads=1, torch="2.13.0", device="cpu")

names = st.from_regex(r"[a-z_]{1,8}(\[[a-z]{1,4}=[0-9]{1,3}\])?|src/m\.py:CARD", fullmatch=True)
sizes = st.integers(1, 2**20)
workloads = st.builds(
    Workload,
    batch=sizes,
    seq_len=sizes,
    width=sizes,
    heads=sizes,
    level=st.sampled_from(Level),
    mode=st.sampled_from(Mode),
    dtype=st.sampled_from(["float32", "bfloat16"]),
    device=st.sampled_from(["cpu", "cuda", "cuda:1"]),
    causal=st.booleans(),
)
labels = st.builds(
    lambda name, form, w: str(Case(mechanism=name, form=form, workload=w)),
    names,
    st.sampled_from(["eager", "sdpa"]),
    workloads,
)
numbers = st.integers(0, 2**53) | st.floats(0, 1e15, allow_nan=False)
entries = st.builds(
    Entry,
    counts=st.dictionaries(st.sampled_from(["flops", "operators", "parameters"]), numbers),
    time=st.none()
    | st.builds(Timing, batch=sizes, seconds=st.lists(st.floats(1e-9, 1e6), max_size=4).map(tuple)),
)
machines = st.builds(
    Machine,
    processor=st.text(),
    cores=sizes,
    threads=sizes,
    torch=st.text(),
    device=st.text(),
)
baselines = st.builds(
    Baseline,
    attnbench=st.text(),
    machine=machines,
    cases=st.dictionaries(labels, entries, max_size=4),
)


@given(baselines)
def test_a_baseline_comes_back_as_it_was(baseline):
    text = dump(baseline)
    assert parse(text) == baseline
    assert dump(parse(text)) == text


@given(workloads, names)
def test_a_printed_case_reads_back(workload, name):
    case = Case(mechanism=name, form="eager", workload=workload)
    assert workload_of(str(case)) == (case.series, workload)


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
    label = "fastformer:eager/B8-N128-D256-H16/attention/inference/float32/cpu"

    def made(operators):
        entry = Entry(counts={"operators": operators, "flops": 2.0, "parameters": 3})
        return Baseline(attnbench="0.1", machine=MACHINE, cases={label: entry})

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
        ({"schema": 2}, "schema 2; this attnbench reads 1"),
        ({"schema": "1"}, "no baseline"),
        ({"cases": {"x": {}}}, "'x' does not read as a case"),
        ({"cases": []}, "no baseline"),
        ({"machine": {}}, "no baseline"),
    ],
)
def test_wrong_fields_are_named(change, words):
    good = json.loads(dump(Baseline(attnbench="0.1", machine=MACHINE, cases={})))
    with pytest.raises(StoreError, match=words) as refused:
        parse(json.dumps({**good, **change}))
    assert isinstance(refused.value, NewerSchema) == (change == {"schema": 2})


def test_a_number_that_is_none_is_refused():
    label = "fastformer:eager/B8-N128-D256-H16/attention/inference/float32/cpu"
    for value in ("NaN", "-1", "true", '"1"', "[]", "1e999"):
        text = dump(Baseline(attnbench="0.1", machine=MACHINE, cases={label: Entry()}))
        with pytest.raises(StoreError):
            parse(text.replace(f'"{label}": {{}}', f'"{label}": {{"flops": {value}}}'))


def test_files_that_cannot_be_read_or_written_say_so(tmp_path):
    with pytest.raises(StoreError, match="cannot read the baseline"):
        load(tmp_path / "nothing.json")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StoreError, match="not text"):
        load(tmp_path / "bytes")
    with pytest.raises(StoreError, match="cannot write"):
        save(Baseline(attnbench="0", machine=MACHINE, cases={}), tmp_path / "no" / "file")


def test_machines_say_how_they_differ():
    other = Machine(processor="B", cores=2, threads=1, torch="2.13.0", device="cpu")
    assert MACHINE.differences(other) == ("processor: A 1 and B",)
    assert not MACHINE.differences(MACHINE)
