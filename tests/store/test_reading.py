import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.errors import StoreError
from attnbench.metrics import TABLE
from attnbench.records import Sample
from attnbench.store import journal, schema
from attnbench.version import __version__
from tests.store.recorded import DATA, LINES, SMALL, SMALL_LINES, SWEEP, rows


def parse(data, origin):
    return journal.contents(data, origin).sweep()


def damaged(data: bytes) -> str:
    """What is said about a journal's first line."""
    with pytest.raises(StoreError) as caught:
        parse(data, "'it'")
    return str(caught.value)


BAD_RUNS = (
    *({"round": value} for value in ([], -1, True, "0", None, 10**101)),
    *({"samples": [value]} for value in ([], ["abc"] * 7, None, 7)),
    *({"iterations": value} for value in (0, -1, 1.5, True, "1")),
    *({"wall_s": value} for value in (0.0, -1.0, float("nan"), float("inf"), 10**400, "1", None)),
    *({"cpu_s": value} for value in (-1.0, float("nan"))),
    *({"device_s": value} for value in (0.0, -1.0, float("nan"))),
    *({"values": {"flops": value}} for value in (-1, float("nan"), float("inf"), "1", [])),
    *({"elapsed_s": value} for value in (-1.0, float("nan"))),
    *({"outcome": "fine"}, {"part": "all"}, {"case": 7}, {"notes": {"a": 1}}),
)


@pytest.mark.parametrize("bad", BAD_RUNS, ids=str)
def test_a_run_with_an_impossible_value_is_set_aside_and_the_rest_is_used(bad):
    data = json.loads(json.dumps(schema.unseal(SMALL_LINES[6]).data))
    for name, value in bad.items():
        if name in Sample._fields:
            data["samples"][0][Sample._fields.index(name)] = value
        else:
            data[name] = value
    bad_line = schema.seal(schema.Entry("run", "", data))
    sweep = parse(b"".join([*SMALL_LINES[:6], bad_line]), "it")
    assert rows(sweep.runs) == rows(SWEEP.runs[:1])
    (said,) = sweep.warnings
    assert said.startswith("line 7: not a line")
    assert said.endswith("; set aside")


@pytest.mark.parametrize("version", [schema.SCHEMA - 1, schema.SCHEMA + 1])
def test_a_journal_of_another_schema_is_refused_with_the_version_that_reads_it(version):
    first, *rest = SMALL.splitlines(keepends=True)
    other = schema.seal(schema.unseal(first), version)
    reads = f"this one, {__version__}, reads schema {schema.SCHEMA} alone"
    said = f"schema {version}: attnbench 0.1.0 wrote it and reads it; {reads}"
    with pytest.raises(StoreError, match=said):
        parse(b"".join([other, *rest]), "it")
    line = schema.seal(schema.Entry("run", "", {}), version)
    with pytest.raises(StoreError, match=f"schema {version}: attnbench another version wrote"):
        parse(SMALL + line, "it")


def test_a_value_of_a_metric_that_this_version_does_not_know_is_dropped():
    entry = schema.unseal(LINES[17])
    odd = {**entry.data, "values": {**entry.data["values"], "of_another_version": 1.0}}
    line = schema.seal(replace(entry, data=odd))
    (run,) = parse(b"".join([*LINES[:5], line]), "it").runs
    assert run.values.keys() == entry.data["values"].keys() & TABLE.keys()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), max_size=4))
def test_damaged_bytes_cost_no_undamaged_line(changes):
    changed = bytearray(SMALL)
    for at, byte in changes:
        changed[at] = byte
    starts = [SMALL.index(line) for line in SMALL.splitlines(keepends=True)]
    whole = {
        index
        for index, (start, end) in enumerate(zip(starts, [*starts[1:], len(SMALL)], strict=True))
        # with the end of the line before
        if changed[max(0, start - 1) : end] == SMALL[max(0, start - 1) : end]
    }
    try:
        sweep = parse(bytes(changed), "it")
    except StoreError:
        assert 0 not in whole
        return
    original = parse(SMALL, "it")
    runs = [run for line, run in zip((5, 6), original.runs, strict=True) if {4, line} <= whole]
    assert set(rows(runs)) <= set(rows(sweep.runs)) <= set(rows(original.runs))
    assert (1 not in whole) or sweep.sessions == original.sessions
    assert (4 not in whole) or sweep.plan == original.plan
    assert (7 not in whole) or sweep.finished
    assert {2, 3} - whole or sweep.cards == original.cards
    assert bytes(changed) == SMALL or sweep.warnings


def test_what_is_set_aside_is_reported_with_its_line():
    unknown = schema.seal(schema.Entry("dance", "", {}))
    forged = LINES[17].replace(b'"round":0', b'"round":7')
    lines = [*LINES[:5], b"\xff\xfe\n", unknown, forged, LINES[0], b"\n", LINES[-2]]
    data = b"".join(lines)
    assert parse(data, "it").warnings == (
        "line 6: not a whole line of a journal; set aside",
        "line 7: unknown kind 'dance'; set aside",
        "line 8: checksum does not match; set aside",
        "line 9: a second header; set aside",
        "line 11: a run of an unknown case; set aside",
    )


def test_a_last_line_that_is_damaged_but_ended_is_not_torn():
    sweep = parse(SMALL.replace(b"finished", b"finishes"), "it")
    assert sweep.warnings == ("line 8: checksum does not match; set aside",)


def test_a_run_may_stand_before_its_case():
    sweep = parse(b"".join([*LINES[:4], *LINES[16:18], LINES[4]]), "it")
    assert rows(sweep.runs) == rows(SWEEP.runs[:2])


def test_without_a_first_line_the_journal_is_damaged():
    assert "'it' is empty: its sweep never began" in damaged(b"")
    assert "(checksum does not match); restore" in damaged(DATA.replace(b"small", b"great"))
    assert "(not a whole line of a journal)" in damaged(LINES[0][:-9])
    assert "(not a whole line of a journal)" in damaged(b"\x89PNG\r\n\x1a\n")
    assert "(it does not begin a sweep)" in damaged(LINES[1])
