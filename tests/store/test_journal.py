from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.errors import DifferentSweep, StoreError
from attnbench.metrics import TABLE
from attnbench.records import Cause, Outcome, Part, Run
from attnbench.store import journal, schema
from attnbench.store.journal import FILE, Journal, load, load_results
from attnbench.store.resuming import done, refuse_other
from attnbench.store.schema import EndReason, Start
from tests.store.recorded import SMALL, SMALL_LINES, SWEEP, opened, rows


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


def test_limits_and_order_make_no_other_request():
    asked = SWEEP.request
    roomier = replace(asked.settings, memory_limit_bytes=1 << 30)
    models = tuple(reversed(asked.models))
    here = replace(
        asked, budget_s=None, rounds=9, case_timeout_s=1.0, settings=roomier, models=models
    )
    refuse_other(SWEEP, Start(here, SWEEP.sessions[0]))
    with pytest.raises(DifferentSweep, match=r"\(tokens: 8192 there, 1 here\)"):
        refuse_other(SWEEP, Start(replace(asked, tokens=1), SWEEP.sessions[0]))


def test_what_is_not_the_machine_may_change():
    here = SWEEP.sessions[0]
    refuse_other(SWEEP, Start(SWEEP.request, replace(here, load=9.0, memory_bytes=1, notes={})))
    with pytest.raises(DifferentSweep, match=r"\(threads: 2 there, 1 here\)"):
        refuse_other(SWEEP, Start(SWEEP.request, replace(here, threads=1)))


def test_what_ran_is_not_replaced_by_why_it_was_left_out(tmp_path):
    ran = next(run for run in SWEEP.runs if run.outcome is Outcome.OK)
    left_out = replace(ran, outcome=Outcome.SKIPPED, samples=(), elapsed_s=0.0)
    with opened(tmp_path) as journal:
        journal.append(*SWEEP.plan, left_out, ran, left_out)
    assert [run.outcome for run in load(tmp_path).runs] == [Outcome.OK]


def test_what_was_skipped_or_killed_is_not_done():
    assert done(SWEEP) == [run for run in SWEEP.runs if run.outcome is not Outcome.SKIPPED]
    ran = next(run for run in SWEEP.runs if run.outcome is Outcome.OK)
    crashed = replace(ran, outcome=Outcome.CRASHED)
    killed = replace(crashed, cause=Cause.KILLED)
    assert done(replace(SWEEP, runs=(crashed, killed))) == [crashed]
