import json
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attnbench.records import LONGEST_S, CardFacts, Environment, Planned, Request, Run, Sample
from attnbench.records.metrics import TABLE
from attnbench.records.storage import schema
from attnbench.records.storage.journal import load
from attnbench.records.storage.schema import End, Head, JournalLine, Start
from tests.records.storage.recorded import RECORDED

# a busy machine is no failure
UNTIMED = settings(deadline=None, max_examples=20)

NOW = "2025-01-31T12:00:00.000+00:00"
HOSTILE = (
    "\n",
    "\x00\x1b[31m",
    "\u2028\x85",
    "ключ",
    "\udc80",
    '"},"sha256":"0123456789abcdef"}\n{',
)


def anything(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of an annotation that is within its bounds, every field of a record drawn."""
    if is_dataclass(hint) or hint is Sample:
        hints = get_type_hints(hint, include_extras=True)
        return st.builds(hint, **{name: anything(h) for name, h in hints.items()})
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kind, bounds = inner
        if kind is str:
            return st.from_regex(bounds.pattern, fullmatch=True)
        return {int: st.integers, float: st.floats}[kind](bounds.ge, bounds.le)
    if hint is float:
        return st.floats(allow_nan=False)
    if hint is str:
        return st.text() | st.sampled_from(HOSTILE)
    if origin in (UnionType, Union):
        return st.one_of(*map(anything, inner))
    if origin is Mapping:
        return st.dictionaries(*map(anything, inner), max_size=3)
    if origin is tuple and inner[-1] is Ellipsis:
        return st.lists(anything(inner[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(anything, inner))
    return st.from_type(hint)


def through(record):
    """The record after a walk through a line."""
    return schema.from_entry(schema.unseal(schema.seal(schema.to_entry(record, NOW))))


@pytest.mark.parametrize("kind", [Head, Start, CardFacts, Planned, End, Request, Environment])
@UNTIMED
@given(data=st.data())
def test_a_record_comes_back_equal(kind, data):
    record = data.draw(anything(kind))
    if kind is Request:
        assert through(Head(name="x", attnbench="1", request=record)).request == record
    elif kind is Environment:
        assert Environment(**json.loads(json.dumps(vars(record)))) == record
    else:
        assert through(record) == record


@UNTIMED
@given(anything(Run))
def test_a_run_comes_back_with_the_id_of_its_case(run):
    values = {name: 2.0 for name, _ in zip(TABLE, run.values, strict=False)}
    took_s = min(sum(sample.wall_s for sample in run.samples), LONGEST_S)
    run = replace(run, values=values, elapsed_s=took_s)
    assert through(run) == replace(run, case=schema.case_id(run.case))


def test_only_differences_and_temperatures_may_be_negative():
    signed = {name for name, row in TABLE.items() if row.signed}
    differences = ["kept_bytes", "saved_bytes", "context_bytes", "grown_bytes", "energy_j"]
    assert signed == {*differences}
    for name in TABLE.keys() - signed:
        run = Run(case="k", part="time", round=0, outcome="ok", values={name: -1.0})
        with pytest.raises(
            ValueError, match=rf"not a line of kind run: `\$.values.{name}` is below 0"
        ):
            through(run)


FEW = load(RECORDED)
RUN = next(run for run in FEW.runs if run.samples)
CARD, LINE = FEW.cards[0], FEW.plan[0]
CASE = LINE.case


@pytest.mark.parametrize("value", [1e99, 1e-11, 2.5, float(1 << 54)])
@pytest.mark.parametrize("name", ["operators", "allocated_peak_bytes", "parameters"])
def test_what_is_counted_is_whole_and_not_beyond_any_machine(name, value):
    with pytest.raises(ValueError, match=rf"`\$.values.{name}` is (not whole|beyond any machine)"):
        through(replace(RUN, values={name: value}))


@pytest.mark.parametrize(
    "nonsense",
    [
        replace(RUN, elapsed_s=1e-11),
        replace(RUN, samples=(RUN.samples[0]._replace(wall_s=1e40),)),
        replace(RUN, samples=(RUN.samples[0]._replace(iterations=10**40),)),
        replace(RUN, samples=(RUN.samples[0]._replace(wall_s=100.0),), elapsed_s=0.7),
        replace(LINE, parameters=10**40),
        *(
            replace(
                LINE, case=replace(LINE.case, workload=replace(LINE.case.workload, **{name: n}))
            )
            for name in ("batch", "seq_len", "width", "heads", "padding", "level", "dtype")
            for n in (-1, None, "x", float("nan"), 10**40)
        ),
        replace(LINE, case=replace(CASE, options=(("rank", float("inf")),))),
        replace(CARD, year=-1),
        replace(CARD, options={"rank": float("-inf")}),
    ],
)
def test_what_no_machine_can_measure_is_no_line_of_a_journal(nonsense):
    """Right types and a right checksum are not enough."""
    with pytest.raises(ValueError, match=r"not a line of kind (run|case|card): "):
        through(nonsense)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_ends_a_line_or_leaves_ascii(text):
    line = schema.seal(JournalLine("end", NOW, {text: text}))
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert schema.unseal(line) == JournalLine("end", NOW, {text: text})
    assert json.loads(line)["data"] == {text: text}


@UNTIMED
@given(st.binary())
@example(b"")
@example(b"\xff\xfe")
@example(b"[" * 100_000)
@example(b'{"schema":' + b"9" * 5000 + b"}")
def test_bytes_that_are_no_line_are_a_value_error(line):
    with pytest.raises(ValueError):
        schema.unseal(line)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (JournalLine("dance", NOW, {}), "unknown kind 'dance'"),
        (
            JournalLine("run", NOW, {}),
            "not a line of kind run: object missing required field `case`",
        ),
        (JournalLine("run", NOW, None), "not a line of kind run: expected `object`, got `null`"),
        (
            JournalLine("session", NOW, {"environment": [], "request": 1}),
            "not a line of kind session",
        ),
        (
            JournalLine("end", NOW, {"outcome": "boredom"}),
            "not a line of kind end: invalid enum value",
        ),
    ],
)
def test_what_is_no_record_says_so(entry, message):
    with pytest.raises(ValueError, match=message):
        schema.from_entry(entry)
