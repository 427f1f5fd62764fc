import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.errors import DamagedJournal, NewerSchema
from attnbench.records import Clock, Disturbance, Outcome, Part, Sample
from attnbench.statistics.ratios import by_pair, log_ratio
from attnbench.store import reading, schema
from attnbench.store.journal import FILE, load
from tests.store.recorded import (
    CLOCKED,
    CROSSED,
    DATA,
    GPU,
    LINES,
    NUMBERED,
    RECORDED,
    SMALL,
    SWEEP,
    rows,
)


def damaged(data: bytes) -> str:
    """What is said about a journal's first line."""
    with pytest.raises(DamagedJournal) as caught:
        reading.parse(data, "'it'")
    return str(caught.value)


def test_the_recorded_sweep_of_schema_1_keeps_loading():
    assert SWEEP.name == "schema1"
    assert SWEEP.finished
    assert SWEEP.warnings == ()
    assert len(SWEEP.sessions) == 1
    assert [card.mechanism for card in SWEEP.cards] == ["fastformer", "transformer"]
    assert len({planned.case.key for planned in SWEEP.plan}) == 12
    assert {run.case for run in SWEEP.runs} == {planned.case.key for planned in SWEEP.plan}
    timed = [run for run in SWEEP.runs if run.samples]
    assert len(timed) == 10 * 3
    assert {run.round for run in timed} == {0, 1, 2}
    others = sorted(run.outcome for run in SWEEP.runs if run.outcome is not Outcome.OK)
    assert others == [Outcome.OOM, Outcome.SKIPPED]


def test_the_recorded_sweep_of_schema_3_has_the_times_of_a_gpu():
    """It was made on the emulated GPU of `tests.emulated`, too slow to enqueue for."""
    sweep = load(GPU)
    assert sweep.warnings == ()
    assert sweep.finished
    samples = [sample for run in sweep.runs for sample in run.samples]
    assert samples
    assert all(s.device_s and s.enqueue_s and s.unheld_s for s in samples)
    for older in (SWEEP, load(NUMBERED)):
        times = [(s.enqueue_s, s.unheld_s) for run in older.runs for s in run.samples]
        assert set(times) == {(None, None)}


def test_the_recorded_sweep_of_schema_2_was_raced_and_has_numbered_lines():
    sweep = load(NUMBERED)
    assert sweep.warnings == ()
    assert sweep.finished
    assert [card.mechanism for card in sweep.cards] == ["fastformer", "transformer"]
    mode = {line.case.key: line.case.workload.mode for line in sweep.plan}
    length = {line.case.key: line.case.workload.seq_len for line in sweep.plan}
    timed = [run for run in sweep.runs if run.part is Part.TIME]
    assert len(timed) == 2 * len(mode) == 16
    for run in timed:
        rival = next(
            r
            for r in timed
            if r.case != run.case
            and r.round == run.round
            and (mode[r.case], length[r.case]) == (mode[run.case], length[run.case])
        )
        laps = [sample.lap for sample in run.samples]
        assert laps == sorted(set(laps))
        assert laps == [sample.lap for sample in rival.samples]
        assert log_ratio(by_pair(run.samples), by_pair(rival.samples)) is not None
    assert all(s.lap is None for run in SWEEP.runs for s in run.samples), "schema 1 had no races"
    lines = (NUMBERED / FILE).read_bytes().splitlines()
    assert [schema.unseal(line).line for line in lines] == list(range(1, len(lines) + 1))


def test_the_recorded_sweep_of_schema_5_was_timed_by_the_cpu_time_of_one_core():
    sweep = load(CLOCKED)
    assert sweep.warnings == ()
    assert sweep.finished
    assert (sweep.request.settings.clock, sweep.request.settings.threads) == (Clock.CPU, 1)
    samples = [sample for run in sweep.runs for sample in run.samples]
    assert {sample.clock for sample in samples} == {Clock.CPU}
    assert {sample.disturbed for sample in samples} == {None, Disturbance.SLOW_CORE}
    assert all(s.seconds == s.cpu_s / s.iterations < s.wall_s / s.iterations for s in samples)
    assert all(s.waited_s > s.cpu_s for s in samples), "processes shared their cores"


@pytest.mark.parametrize("older", [RECORDED, NUMBERED, CROSSED], ids=lambda p: p.name)
def test_older_journals_keep_the_wall_time_with_which_they_were_reported(older):
    sweep = load(older)
    assert sweep.request.settings.clock is Clock.WALL
    samples = [sample for run in sweep.runs for sample in run.samples]
    assert samples
    assert all(s.seconds == s.wall_s / s.iterations for s in samples)
    assert all((s.clock, s.waited_s, s.disturbed) == (Clock.WALL, None, None) for s in samples)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_lines_that_are_missing_or_moved_are_reported(data):
    """Of the runs only: a line that is removed at the end cannot be missed."""
    lines = (NUMBERED / FILE).read_bytes().splitlines(keepends=True)
    head, rest = lines[:12], lines[12:]
    gone = data.draw(st.sets(st.integers(0, len(rest) - 2), max_size=4))
    left = [line for index, line in enumerate(rest) if index not in gone]
    moved = data.draw(st.permutations(left)) if data.draw(st.booleans()) else left
    said = " ".join(reading.parse(b"".join([*head, *moved]), "it").warnings)
    assert ("between the numbers of lines" in said) == (moved != rest)


def test_a_line_that_cannot_be_read_is_not_missing_too():
    lines = (NUMBERED / FILE).read_bytes().splitlines(keepends=True)
    lines[20] = b"?" + lines[20][1:]
    data = b"".join(lines[:30]) + b"noise\n" + b"".join(lines[30:])
    said = reading.parse(data, "it").warnings
    assert [line.partition(":")[0] for line in said] == ["line 21", "line 31"]


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
    data = json.loads(json.dumps(schema.unseal(LINES[17]).data))
    for name, value in bad.items():
        if name in Sample._fields:
            data["samples"][0][Sample._fields.index(name)] = value
        else:
            data[name] = value
    bad_line = schema.seal(schema.Entry("run", "", data))
    sweep = reading.parse(b"".join([*LINES[:5], LINES[16], bad_line]), "it")
    assert rows(sweep.runs) == rows(SWEEP.runs[:1])
    (said,) = sweep.warnings
    assert said.startswith("line 7: not a line")
    assert said.endswith("; set aside")


@pytest.mark.parametrize("name", ["batch", "seq_len", "width", "heads", "padding", "level"])
@pytest.mark.parametrize("value", [0.5, -1, None, "x", float("nan")])
def test_a_case_with_an_impossible_size_is_set_aside(name, value):
    if (name, value) == ("padding", 0.5):
        return
    data = json.loads(json.dumps(schema.unseal(LINES[5]).data))
    data["case"]["workload"][name] = value
    bad_line = schema.seal(schema.Entry("case", "", data))
    sweep = reading.parse(b"".join([*LINES[:5], bad_line]), "it")
    assert len(sweep.plan) == 1
    assert f"`$.case.workload.{name}`; set aside" in sweep.warnings[0]


def test_a_journal_with_later_lines_is_refused_whole():
    later = schema.seal(schema.Entry("run", "", {}), version=schema.SCHEMA + 1)
    said = rf"schema {schema.SCHEMA + 1}, .* reads up to {schema.SCHEMA}; upgrade attnbench"
    with pytest.raises(NewerSchema, match=said):
        reading.parse(SMALL + later, "it")


def test_a_journal_may_be_cut_at_every_byte_of_its_last_line():
    before = len(SMALL) - len(LINES[-1])
    for cut in range(before, len(SMALL)):
        sweep = reading.parse(SMALL[:cut], "it")
        assert len(sweep.runs) == 2
        whole = cut in (before, len(SMALL) - 1)
        assert sweep.warnings == (() if whole else (reading.TORN,))
        assert sweep.finished == (cut == len(SMALL) - 1)


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
        sweep = reading.parse(bytes(changed), "it")
    except DamagedJournal:
        assert 0 not in whole
        return
    original = reading.parse(SMALL, "it")
    runs = [run for line, run in zip((5, 6), original.runs, strict=True) if {4, line} <= whole]
    assert set(rows(runs)) <= set(rows(sweep.runs)) <= set(rows(original.runs))
    assert (1 not in whole) or sweep.sessions == original.sessions
    assert (4 not in whole) or sweep.plan == original.plan
    assert (7 not in whole) or sweep.finished
    assert {2, 3} - whole or sweep.cards == original.cards
    assert bytes(changed) == SMALL or sweep.warnings


def test_lines_may_end_as_on_windows():
    assert reading.parse(DATA.replace(b"\n", b"\r\n"), "it") == SWEEP


def test_what_is_set_aside_is_reported_with_its_line():
    unknown = schema.seal(schema.Entry("dance", "", {}))
    forged = LINES[17].replace(b'"round":0', b'"round":7')
    other_case = LINES[-2]
    data = b"".join([*LINES[:5], b"\xff\xfe\n", unknown, forged, LINES[0], b"\n", other_case])
    assert reading.parse(data, "it").warnings == (
        "line 6: not a whole line of a journal; set aside",
        "line 7: unknown kind 'dance'; set aside",
        "line 8: checksum does not match; set aside",
        "line 9: a second header; set aside",
        "line 11: a run of an unknown case; set aside",
    )


def test_a_last_line_that_is_damaged_but_ended_is_not_torn():
    sweep = reading.parse(SMALL.replace(b"finished", b"finishes"), "it")
    assert sweep.warnings == ("line 8: checksum does not match; set aside",)


def test_a_run_may_stand_before_its_case():
    sweep = reading.parse(b"".join([*LINES[:4], *LINES[16:18], LINES[4]]), "it")
    assert rows(sweep.runs) == rows(SWEEP.runs[:2])


def test_without_a_first_line_the_journal_is_damaged():
    assert "'it' is empty: its sweep never began" in damaged(b"")
    assert "(checksum does not match); restore" in damaged(DATA.replace(b"schema1", b"schema2"))
    assert "(not a whole line of a journal)" in damaged(LINES[0][:-9])
    assert "(not a whole line of a journal)" in damaged(b"\x89PNG\r\n\x1a\n")
    assert "(it does not begin a sweep)" in damaged(LINES[1])
