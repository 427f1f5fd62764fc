"""A journal as it is written, read, resumed and damaged."""

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.errors import DifferentSweep, StoreError
from attnbench.records import Origin, Outcome, Part, Run, Sample
from attnbench.records.metrics import TABLE
from attnbench.records.storage import journal, schema
from attnbench.records.storage.journal import FILE, Journal, load, load_results
from attnbench.records.storage.schema import EndReason, Start
from attnbench.version import __version__
from tests.records.storage.recorded import DATA, LINES, SMALL, SMALL_LINES, SWEEP, opened, rows


def test_what_is_written_is_read(tmp_path):
    with opened(tmp_path / "new" / "sweep") as open_journal:
        assert open_journal.sweep.plan == ()
        open_journal.append(*SWEEP.cards, *SWEEP.plan)
        for run in SWEEP.runs:
            open_journal.append(run)
        begun = open_journal.sweep.begun
        written = replace(SWEEP, name="sweep", begun=begun)
        assert load(open_journal.folder) == replace(written, finished=False)
        open_journal.end(EndReason.FINISHED)
    assert load(tmp_path / "new" / "sweep") == written


ADDED = replace(TABLE["power_w"], key="balance_w", signed=True)
ROWS = {**TABLE, ADDED.key: ADDED}
NAMES = st.sampled_from([*ROWS])


def values(name):
    """What a run may say of a metric, as far as its row says."""
    least = -(1 << 50) if ROWS[name].signed else 0
    return st.integers(least, 1 << 50).map(lambda value: {name: float(value)})


@settings(deadline=None, max_examples=20)
@given(st.lists(NAMES.flatmap(values), min_size=1))
def test_every_value_that_its_row_allows_is_read_again(found):
    runs = [replace(SWEEP.runs[0], round=i, values=one) for i, one in enumerate(found)]
    with (
        patch.object(schema, "TABLE", ROWS),
        TemporaryDirectory() as folder,
        opened(Path(folder) / "sweep") as open_journal,
    ):
        open_journal.append(*SWEEP.plan, *runs)
        assert [run.values for run in load(open_journal.folder).runs] == found


@pytest.mark.parametrize("name", ["two words", "путь", "\x1b[31mred\n", "-rf *", "\udc80", "'"])
def test_hostile_names_are_only_names(tmp_path, name):
    start = Start(SWEEP.request, SWEEP.sessions[0])
    with Journal(tmp_path / name, start) as open_journal:
        open_journal.append(*SWEEP.plan)
    Journal(tmp_path / name, start).close()
    assert load(tmp_path / name).name == name


def test_a_sweep_that_never_began_is_no_sweep(tmp_path):
    (tmp_path / FILE).touch()
    with pytest.raises(StoreError, match="is empty"):
        load(tmp_path)
    opened(tmp_path).close()
    assert load(tmp_path).name == tmp_path.name


def test_a_resumed_sweep_is_not_finished_until_it_ends_again(tmp_path):
    with opened(tmp_path) as open_journal:
        open_journal.end(EndReason.FINISHED)
    longer = replace(SWEEP.request, budget_s=900.0, rounds=5)
    with opened(tmp_path, longer) as open_journal:
        assert open_journal.sweep.finished
        assert not load(tmp_path).finished
        assert load(tmp_path).request == longer
        open_journal.end(EndReason.INTERRUPTED)
    assert not load(tmp_path).finished
    assert len(load(tmp_path).sessions) == 2


def test_runs_without_an_origin_have_the_request_of_the_last_session():
    def lines(*records):
        return b"".join(schema.seal(schema.to_entry(record, "")) for record in records)

    longer = replace(SWEEP.request, rounds=9)
    run = replace(SWEEP.runs[0], origin=Origin())
    sessions = [Start(request, SWEEP.sessions[0]) for request in (SWEEP.request, longer)]
    data = LINES[0] + lines(sessions[0], run, sessions[1], run)
    assert journal.contents(data, "it").sweep().asked == {Origin(): longer}


def test_every_cut_of_the_last_line_can_be_resumed(tmp_path):
    before = len(SMALL) - len(SMALL_LINES[-1])
    third = replace(SWEEP.runs[1], round=1)
    for cut in (before, before + 1, before + 40, len(SMALL) - 2, len(SMALL) - 1, len(SMALL)):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / FILE).write_bytes(SMALL[:cut])
        with opened(folder) as open_journal:
            torn = open_journal.sweep.warnings == (journal.TORN,)
            open_journal.append(third)
        assert torn == (before < cut < len(SMALL) - 1)
        sweep = load(folder)
        assert sweep.warnings == ()
        assert rows(sweep.runs) == rows([*SWEEP.runs[:2], third])
        assert all(map(schema.unseal, (folder / FILE).read_bytes().splitlines()))


def test_loading_writes_nothing(tmp_path):
    (tmp_path / FILE).write_bytes(SMALL[:-3])
    load(tmp_path)
    load(tmp_path / FILE)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert (tmp_path / FILE).read_bytes() == SMALL[:-3]


def test_a_missing_sweep_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in ("frist", "empty", f"frist/{FILE}"):
        with pytest.raises(StoreError, match=rf"^no sweep in '{tmp_path}/{Path(path).parts[0]}'$"):
            load(tmp_path / path)


@pytest.mark.parametrize("path", ["/dev/zero", "\0", "x" * 5000, "a/\udc80\ud800/b"])
def test_what_cannot_be_a_sweep_is_a_store_error(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError):
        load(path)
    with pytest.raises(StoreError):
        opened(path)


def test_nothing_of_a_failed_append_stays_and_a_closed_journal_takes_no_more(tmp_path):
    with opened(tmp_path) as open_journal:
        before = (tmp_path / FILE).read_bytes()
        bad = Run(case="", part=Part.TIME, round=0, outcome=Outcome.OK, notes={"x": object()})
        with pytest.raises(TypeError):
            open_journal.append(SWEEP.plan[0], bad)
        assert (tmp_path / FILE).read_bytes() == before
    open_journal.close()
    with pytest.raises(StoreError, match="cannot write"):
        open_journal.append(SWEEP.plan[0])


def test_a_sweep_without_cases_has_no_results(tmp_path):
    opened(tmp_path).close()
    assert load(tmp_path).plan == ()
    with pytest.raises(StoreError, match=r"has no cases: .*; repeat it with --resume"):
        load_results(tmp_path)


def test_another_request_or_machine_is_refused(tmp_path):
    opened(tmp_path).close()
    request = replace(
        SWEEP.request, lengths=(512,), settings=replace(SWEEP.request.settings, seed=4)
    )
    machine = replace(SWEEP.sessions[0], torch="1.0", attnbench="0.0.9")
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(DifferentSweep) as caught:
        Journal(tmp_path, Start(request, machine))
    texts = "lengths: 512,2048,8192 there, 512 here; seed: 0 there, 4 here; attnbench: 0.1.0 there,"
    for text in (texts, "; torch: 2.13.0+cpu there"):
        assert text in str(caught.value)
    assert (tmp_path / FILE).read_bytes() == before


def test_what_ran_is_not_replaced_by_why_it_was_left_out(tmp_path):
    ran = next(run for run in SWEEP.runs if run.outcome is Outcome.OK)
    left_out = replace(ran, outcome=Outcome.SKIPPED, samples=(), elapsed_s=0.0)
    with opened(tmp_path) as journal:
        journal.append(*SWEEP.plan, left_out, ran, left_out)
    assert [run.outcome for run in load(tmp_path).runs] == [Outcome.OK]


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
    bad_line = schema.seal(schema.JournalLine("run", "", data))
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
    line = schema.seal(schema.JournalLine("run", "", {}), version)
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
    unknown = schema.seal(schema.JournalLine("dance", "", {}))
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
