"""Shards merged are the sweep that one machine would have measured; what does not belong is not."""

import shutil
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.analysis.report import analyse
from attnbench.errors import DifferentSweep, StoreError
from attnbench.records import Shard
from attnbench.records.storage import journal
from attnbench.records.storage.journal import FILE, Journal, load
from attnbench.records.storage.merging import joined, merge
from attnbench.records.storage.schema import Start
from tests.commands.sweeping.cluster.shards import FACTS, contents, divided, measured
from tests.records.storage.recorded import entries
from tests.running.sessions import REQUEST
from tests.sweeps import environment


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Three shards; tests must not change them."""
    return divided(tmp_path_factory.mktemp("shards"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The sweep undivided; tests must not change it."""
    return measured(tmp_path_factory.mktemp("sweep") / "whole")


@pytest.fixture
def copy(shards, tmp_path):
    """A copy of the first shard, to be changed."""
    return shutil.copytree(shards[0], tmp_path / "shard-1")


def test_merged_shards_are_the_undivided_sweep_but_for_order_and_times(shards, whole, tmp_path):
    merged = merge(shards, tmp_path / "merged")
    assert contents(merged) == contents(load(whole))
    assert (merged.name, merged.finished, merged.warnings) == ("merged", True, ())
    assert merged.shards == tuple(Shard(i, 3) for i in (1, 2, 3))
    assert len(merged.sessions) == 3


def test_every_run_keeps_its_time_and_says_where_it_was_measured(shards, whole, tmp_path):
    merged = merge(shards, tmp_path)
    for folder in shards:
        assert all(run in merged.runs for run in load(folder).runs)
    assert {run.origin.host for run in merged.runs} == {f"node-{i}/3" for i in (1, 2, 3)}
    assert {run.origin.shard for run in merged.runs} == {Shard(i, 3) for i in (1, 2, 3)}
    assert all(run.origin.shard is None for run in load(whole).runs)
    times = {entry.at for folder in shards for entry in entries(folder)}
    assert {entry.at for entry in entries(tmp_path)} <= times


def test_a_folder_that_holds_a_sweep_is_left_alone(shards, copy, tmp_path):
    before = (copy / FILE).read_bytes()
    with pytest.raises(StoreError, match="already holds a sweep; choose another folder with --out"):
        merge(shards, copy)
    assert (copy / FILE).read_bytes() == before


def test_what_was_merged_is_merged_with_more(shards, whole, tmp_path):
    first = merge(shards[:2], tmp_path / "first")
    assert not first.finished
    assert first.shards == (Shard(1, 3), Shard(2, 3))
    last = merge([tmp_path / "first", *shards], tmp_path / "last")
    assert last.finished
    assert contents(last) == contents(load(whole))


def test_a_damaged_line_is_reported_and_left_behind(shards, copy, tmp_path):
    *lines, last = (copy / FILE).read_bytes().splitlines(keepends=True)
    (copy / FILE).write_bytes(b"".join([*lines[:-1], b"?" + lines[-1], last]))
    (said,) = merge([copy, *shards[1:]], tmp_path / "merged").warnings
    assert said.endswith("not a whole line of a journal; set aside")
    assert load(tmp_path / "merged").warnings == ()


def test_shards_that_are_missing_are_named(shards, tmp_path):
    merged = merge([shards[1], shards[1]], tmp_path)
    assert list(merged.missing) == [Shard(1, 3), Shard(3, 3)]
    first, *_ = analyse(merged).warnings
    assert first.startswith("incomplete: 1 of 3 shards; missing 1/3, 3/3")
    assert list(merge(shards, tmp_path, again=True).missing) == []
    merge(shards[:2], tmp_path / "m")
    measured(tmp_path / "m")
    assert list(load(tmp_path / "m").missing) == []  # resumed as a whole sweep


def test_journals_without_cases_are_no_sweep(shards, tmp_path):
    empty = shutil.copytree(shards[0], tmp_path / "empty")
    (empty / FILE).write_bytes((empty / FILE).read_bytes().partition(b"\n")[0] + b"\n")
    with pytest.raises(StoreError, match="has no cases"):
        merge([empty, empty], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
    assert merge([empty, shards[1]], tmp_path / "merged").plan


def test_a_shard_that_was_stopped_leaves_the_sweep_unfinished(shards, copy, tmp_path):
    lines = (copy / FILE).read_bytes().splitlines(keepends=True)
    (copy / FILE).write_bytes(b"".join(lines[:-2]))
    merged = merge([copy, *shards[1:]], tmp_path / "merged")
    assert not merged.finished
    measured(copy, Shard(1, 3))
    again = merge([copy, *shards[1:]], tmp_path / "merged", again=True)
    assert again.finished
    attempts = {run.origin.attempt for run in again.runs if run.origin.shard == Shard(1, 3)}
    assert attempts == {1, 2}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "NVIDIA H100"}, "device: cpu there, NVIDIA H100 here"),
        ({"torch": "2.14"}, "torch: 2.13.0 there, 2.14 here"),
        ({"threads": 4}, "threads: 2 there, 4 here"),
        ({"attnbench": "0.2.0"}, "attnbench: 0.1.0 there, 0.2.0 here"),
        ({"request": replace(REQUEST, tokens=256)}, "tokens: 512 there, 256 here"),
        ({"request": replace(REQUEST, lengths=(128,))}, "lengths: 128,256,512 there, 128 here"),
        ({"shard": Shard(2, 2)}, "shards: 3 there, 2 here"),
    ],
    ids=lambda value: value.partition(":")[0] if isinstance(value, str) else "",
)
def test_another_machine_version_or_request_is_refused(shards, tmp_path, changes, words):
    other = measured(tmp_path / "other", **{"shard": Shard(3, 3), **changes})
    with pytest.raises(DifferentSweep) as refused:
        merge([*shards[:2], other], tmp_path / "merged")
    assert words in str(refused.value)
    assert str(other) in str(refused.value)
    assert not (tmp_path / "merged").exists()


def test_shards_of_other_code_are_refused_by_the_name_of_the_mechanism(tmp_path):
    def shard(number, code):
        cards = (FACTS[0], replace(FACTS[1], code=code))
        return measured(tmp_path / f"shard-{number}", Shard(number, 3), cards=cards)

    unknown, one, other = shard(1, ""), shard(2, "one"), shard(3, "another")
    name = FACTS[1].mechanism
    with pytest.raises(DifferentSweep, match=f"the code of {name} is not the same in both") as said:
        merge([unknown, one, other], tmp_path / "merged")
    assert str(one) in str(said.value)
    assert str(other) in str(said.value)
    assert not (tmp_path / "merged").exists()
    assert merge([unknown, one], tmp_path / "merged").runs, "an older journal has no digests"


def test_a_shard_measured_twice_is_refused(shards, whole, tmp_path):
    again = measured(tmp_path / "again", Shard(2, 3), seconds=lambda case: 0.2)
    for other in (again, whole):
        with pytest.raises(DifferentSweep, match=r"a different run of .*(time|memory), round \d"):
            merge([*shards, other], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_runs_of_a_shard_merged_while_it_ran_keep_the_request_of_their_session(shards, tmp_path):
    lines = (shards[0] / FILE).read_bytes().splitlines(keepends=True)
    early = tmp_path / "early" / FILE
    early.parent.mkdir()
    early.write_bytes(b"".join(lines[:-3]))
    other = measured(tmp_path / "other", Shard(2, 3), request=replace(REQUEST, rounds=5))
    merge([early.parent, other], tmp_path / "merged")
    later = merge([tmp_path / "merged", shards[0]], tmp_path / "all")
    rounds = {origin.shard: request.rounds for origin, request in later.asked.items()}
    assert rounds == {Shard(1, 3): REQUEST.rounds, Shard(2, 3): 5}


def test_a_plain_resume_of_merged_shards_measures_what_they_lack(shards, whole, tmp_path):
    merge(shards[:2], tmp_path)
    missing = contents(load(whole))[-1].keys() - contents(load(tmp_path))[-1].keys()
    assert missing
    measured(tmp_path)
    sweep = load(tmp_path)
    assert sweep.finished
    assert contents(sweep)[-1].keys() == contents(load(whole))[-1].keys()
    assert {key(run) for run in sweep.runs if run.origin.shard is None} == missing


@pytest.mark.parametrize(("shard", "said"), [(Shard(2, 3), "1/3 there, 2/3"), (None, "there, all")])
def test_a_shard_is_resumed_as_itself_alone(copy, shard, said):
    with pytest.raises(DifferentSweep, match=f"shard: .*{said} here"):
        Journal(copy, Start(REQUEST, environment(), shard))


@settings(max_examples=60)
@given(st.data())
def test_whatever_is_lost_of_the_journals_what_is_left_is_merged(shards, data):
    pieces = {}
    for folder in data.draw(st.permutations(shards)):
        head, *lines = (folder / FILE).read_bytes().splitlines(keepends=True)
        gone = data.draw(st.sets(st.integers(0, len(lines) - 1), max_size=6))
        left = [line for i, line in enumerate(lines) if i not in gone]
        pieces[str(folder)] = journal.contents(b"".join([head, *left]), "it")
    content = joined(pieces, "merged")
    merged = journal.contents(content, "it").sweep()
    sweeps = [piece.sweep() for piece in pieces.values()]
    cases = {planned.case.key for sweep in sweeps for planned in sweep.plan}
    runs = {key(run) for sweep in sweeps for run in sweep.runs}
    assert {planned.case.key for planned in merged.plan} == cases
    assert runs <= {key(run) for run in merged.runs}
    assert all("a run of an unknown case" in said for said in merged.warnings)
    again = {**pieces, "again": pieces[str(folder)], "merged": journal.contents(content, "it")}
    assert joined(again, "merged") == content


def key(run):
    return run.case, run.part, run.round
