"""Who runs when, and what becomes of an entrant that fails; workers answer by rule."""

import random
from collections import Counter
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.records import Case, Level, Workload
from attnbench.run.race import Race, Round, Turns, in_turns
from tests.run.machine import Machine

CASES = {
    name: Case(
        mechanism=name, form="eager", workload=Workload(batch=1, seq_len=8, level=Level.ATTENTION)
    )
    for name in "abc"
}

pairs = st.dictionaries(st.text(min_size=1, max_size=2), st.integers(1, 7), min_size=1, max_size=5)


def race(pairs=3, limit_s=1e9, first_lap=0):
    return Race(
        builds={name: asdict(case) for name, case in CASES.items()},
        turns=lambda times: {name: Turns(pairs=pairs, iterations=1) for name in times},
        limit_s=lambda name, iteration_s, elapsed_s: limit_s - elapsed_s,
        first_lap=first_lap,
    )


def ran(machine, race, draw=0):
    with Round(lambda name: machine.start(name), random.Random(draw), machine.clock) as round_:
        return round_.race(race)


@given(pairs, st.integers())
def test_laps_come_in_pairs_that_mirror_each_other(pairs, seed):
    turns = {name: Turns(pairs=count, iterations=1) for name, count in pairs.items()}
    found = list(in_turns(turns, random.Random(seed)))
    assert Counter(name for _, name in found) == {name: 2 * n for name, n in pairs.items()}
    for pair in range(max(pairs.values())):
        first, second = ([name for lap, name in found if lap == 2 * pair + i] for i in (0, 1))
        assert first == second[::-1]
        assert len(set(first)) == len(first)


@given(pairs, st.integers())
def test_every_entrant_shares_its_pairs_with_the_one_that_has_most(pairs, seed):
    turns = {name: Turns(pairs=count, iterations=1) for name, count in pairs.items()}
    found = list(in_turns(turns, random.Random(seed)))
    most = max(pairs, key=pairs.__getitem__)
    of_most = {lap for lap, name in found if name == most}
    assert all(lap in of_most for lap, _ in found)


def test_both_orders_occur():
    turns = {name: Turns(pairs=200, iterations=1) for name in "ab"}
    starts = [name for _, name in in_turns(turns, random.Random(0))][::4]
    assert 60 < starts.count("a") < 140


def test_all_are_warm_before_the_first_lap_and_finished_after_the_last():
    machine = Machine()
    entries = ran(machine, race())
    asked = [do for do, _, _ in machine.asked]
    assert asked == ["build"] * 3 + ["lap"] * 18 + ["finish"] * 3
    assert all(sorted(entry.laps) == list(range(6)) for entry in entries.values())
    assert len({pid for _, _, pid in machine.asked}) == 3


@pytest.mark.parametrize("do", ["build", "lap", "finish"])
def test_the_race_goes_on_without_one_that_fails(do):
    bad = {"outcome": "crashed", "reason": "signal 11"}
    machine = Machine(fate=lambda case, d: bad if (case.mechanism, d) == ("b", do) else None)
    entries = ran(machine, race())
    assert entries["b"].failed == bad
    for name in "ac":
        assert entries[name].failed is None
        assert len(entries[name].laps) == 6


def test_one_that_failed_is_replaced_and_the_others_are_not():
    machine = Machine(
        fate=lambda case, do: (
            {"outcome": "failed", "reason": "no"} if case.mechanism == "b" else None
        )
    )
    with Round(lambda name: machine.start(name), random.Random(0), machine.clock) as round_:
        round_.race(race())
        round_.race(race())
    assert Counter(name for name, _ in machine.started) == {"a": 1, "b": 2, "c": 1}


def test_an_entrant_has_a_limit_for_all_that_it_does():
    machine = Machine(seconds=lambda case: 1.0 if case.mechanism == "b" else 0.01)
    entries = ran(machine, race(limit_s=3.5))
    assert entries["b"].failed["outcome"] == "timeout"
    assert 0 < len(entries["b"].laps) < 6
    assert len(entries["a"].laps) == 6


def test_a_later_race_goes_on_counting_laps():
    entries = ran(Machine(), race(pairs=2, first_lap=6))
    assert sorted(entries["a"].laps) == [6, 7, 8, 9]
