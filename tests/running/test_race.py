"""Who runs when and how often, what becomes of a case that fails, and what laps may claim."""

import math
import mmap
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.devices import host
from attnbench.records import Case, Cause, Clock, Level, Sample, Settings, Workload
from attnbench.records.messages import Build, Failure, of_case
from attnbench.running.process import failure_of_a_lost_process
from attnbench.running.race import (
    CUT_OFF,
    Round,
    Turns,
    Usage,
    contradiction,
    in_turns,
    inconsistency,
    turns,
    understatement,
)
from tests.doubles.machine import Machine

CASES = {
    name: Case(
        mechanism=name, form="eager", workload=Workload(batch=1, seq_len=8, level=Level.ATTENTION)
    )
    for name in "abc"
}

LAST = 1  # a seed by which b builds last

pairs = st.dictionaries(st.text(min_size=1, max_size=2), st.integers(1, 7), min_size=1, max_size=5)


KILLED = Failure(outcome="crashed", cause=Cause.KILLED, reason="signal 9")


def of_b(do, answer=KILLED, times=99):
    """The fate of b: its process answers so, or is killed, so many times when it is asked this."""
    left = [answer] * times
    return lambda case, asked: left.pop() if left and (case.mechanism, asked) == ("b", do) else None


def race(round_, pairs=3, limit_s=1e9, **how):
    """The entries of a race of all cases."""
    return round_.race(
        {name: Build(**of_case(case)) for name, case in CASES.items()},
        lambda times: {name: Turns(pairs=pairs, iterations=1) for name in times},
        lambda name, wall_s: limit_s,
        again_alone=True,
        **how,
    )


def ran(machine, draw=0, budget_s=math.inf, round_=Round, **how):
    """The entries of a race in a round of its own, for which there is a budget."""
    end_s = machine.now + budget_s
    left_s = lambda: end_s - machine.now  # noqa: E731
    with round_(machine.start, random.Random(draw), machine.clock, left_s=left_s) as processes:
        return race(processes, **how)


def together(entries):
    """Those that did not fail, which have six laps of the same numbers."""
    laps = {name: sorted(entry.laps) for name, entry in entries.items() if entry.failure is None}
    assert len({tuple(own) for own in laps.values()}) == 1
    assert all(len(own) == 6 for own in laps.values())
    return laps.keys()


@given(pairs, st.integers())
def test_laps_come_in_pairs_that_mirror_each_other(pairs, seed):
    turns = {name: Turns(pairs=count, iterations=1) for name, count in pairs.items()}
    found = list(in_turns(turns, random.Random(seed)))
    laps = {name: [lap for lap, of in found if of == name] for name in pairs}
    assert laps == {name: list(range(2 * n)) for name, n in pairs.items()}, "all share the first"
    for pair in range(max(pairs.values())):
        first, second = ([name for lap, name in found if lap == 2 * pair + i] for i in (0, 1))
        assert first == second[::-1]
        assert len(set(first)) == len(first)


def test_both_orders_occur():
    turns = {name: Turns(pairs=200, iterations=1) for name in "ab"}
    starts = [name for _, name in in_turns(turns, random.Random(0))][::4]
    assert 60 < starts.count("a") < 140


def test_all_are_warm_before_the_first_lap_and_finished_after_the_last():
    machine = Machine()
    entries = ran(machine)
    asked = [do for do, _, _ in machine.asked]
    assert asked == ["build"] * 3 + ["lap"] * 18 + ["finish"] * 3
    assert all(sorted(entry.laps) == list(range(6)) for entry in entries.values())
    assert len({pid for _, _, pid in machine.asked}) == 3


@pytest.mark.parametrize("do", ["build", "lap", "finish"])
def test_the_race_goes_on_without_one_that_fails(do):
    bad = Failure(outcome="crashed", reason="signal 11")
    entries = ran(Machine(fate=of_b(do, bad)))
    assert entries["b"].failure == bad
    for name in "ac":
        assert entries[name].failure is None
        assert len(entries[name].laps) == 6


class Watched(Machine):
    """Also knows how many processes were alive at each question."""

    def __init__(self, **how):
        super().__init__(**how)
        self.workers, self.alive = [], []

    def start(self, series, **how):
        self.workers.append(super().start(series, **how))
        return self.workers[-1]

    def living(self):
        return sum(worker.alive for worker in self.workers)


@pytest.mark.parametrize("do", ["build", "lap"])
def test_one_that_failed_has_ended_before_another_has_its_turn(do):
    """It might hold memory that the others need."""
    failed = []

    def fate(case, asked):
        if failed:
            machine.alive.append(machine.living())
        if (case.mechanism, asked) == ("b", do):
            failed.append(asked)
            return Failure(outcome="failed", reason="no")
        return None

    machine = Watched(fate=fate)
    ran(machine)
    assert max(machine.alive) == 2


@pytest.mark.parametrize("do", ["build", "lap"])
@pytest.mark.parametrize("large", ["b", "bc"])
def test_who_runs_out_of_memory_beside_others_has_all_of_it_once(large, do):
    def fate(case, asked):
        full = case.mechanism in large and asked == do and machine.living() > 1
        return Failure(outcome="oom", reason="beside others") if full else None

    machine = Watched(fate=fate)
    entries = ran(machine, draw=LAST, first_lap=4)
    for name, entry in entries.items():
        assert entry.failure is None
        assert len(entry.laps) == 6
        if name not in large:
            assert sorted(entry.laps) == list(range(4, 10))
            continue
        for other in entries.keys() - {name}:
            assert not entry.laps.keys() & entries[other].laps.keys(), "they took no turns"
        assert {lap % 2 for lap in entry.laps} == {0, 1}
        assert min(entry.laps) % 2 == 0


def test_who_runs_out_of_memory_alone_has_run_out():
    full = Failure(outcome="oom", reason="too large")
    machine = Machine(fate=of_b("build", full))
    assert ran(machine, draw=LAST)["b"].failure == full
    assert Counter(name for name, _ in machine.started) == {"a": 1, "b": 2, "c": 1}


def test_a_case_has_a_limit_for_all_that_it_does():
    machine = Machine(seconds=lambda case: 1.0 if case.mechanism == "b" else 0.01)
    entries = ran(machine, limit_s=3.5)
    assert entries["b"].failure.outcome == "timeout"
    assert 0 < len(entries["b"].laps) < 6
    assert len(entries["a"].laps) == 6


@pytest.mark.parametrize("do", ["build", "lap", "finish"])
@pytest.mark.parametrize("answer", [KILLED, failure_of_a_lost_process("together with its server")])
def test_who_is_killed_once_takes_part_again(do, answer):
    machine = Machine(fate=of_b(do, answer, times=1))
    assert together(ran(machine)) == {*"abc"}
    builds = Counter(case.mechanism for asked, case, _ in machine.asked if asked == "build")
    assert builds == {"a": 2, "b": 2, "c": 2}


@pytest.mark.parametrize("do", ["build", "lap", "finish"])
def test_who_is_killed_twice_is_left_out(do):
    machine = Machine(fate=of_b(do))
    entries = ran(machine)
    assert entries["b"].failure == KILLED
    assert together(entries) == {"a", "c"}
    assert Counter(name for name, _ in machine.started)["b"] == 2


def test_memory_that_others_held_at_the_time_is_not_charged_though_they_ended_later():
    """b runs out beside a and c, which are replaced when they have finished."""
    crowded = []

    def fate(case, asked):
        if (case.mechanism, asked) == ("b", "lap") and machine.living() > 1:
            crowded.append(case)
            return Failure(outcome="oom", reason="beside others")
        if asked == "finish":
            return {"outcome": "ok", "values": {}, "notes": {}, "needs_new_process": True}
        return None

    machine = Watched(fate=fate)
    entries = ran(machine)
    assert crowded
    assert entries["b"].failure is None
    assert len(entries["b"].laps) == 6


def test_what_fails_as_it_races_again_because_of_another_keeps_its_laps_and_says_so():
    def fate(case, asked):
        if case.mechanism == "b" and asked == "lap":
            return KILLED
        built_again = sum(do == "build" and c.mechanism == "a" for do, c, _ in machine.asked) > 1
        if case.mechanism == "a" and asked == "lap" and built_again:
            return Failure(outcome="failed", reason="unlucky")
        return None

    machine = Machine(fate=fate)
    entries = ran(machine)
    assert entries["a"].failure is None
    assert sorted(entries["a"].laps) == list(range(6))
    assert entries["a"].answer.notes["later"] == "failed in a later race of its round: unlucky"


def test_time_in_which_this_process_was_stopped_is_no_time_of_a_case():
    """As by Ctrl-Z and fg: an answer waited for it."""
    stopped = []

    def clock():
        if not stopped and machine.asked and machine.asked[-1][0] == "lap":
            stopped.append(True)
            machine.now += 3600.0
        return machine.now

    machine = Machine()
    with Round(machine.start, random.Random(0), clock) as processes:
        entries = race(processes, limit_s=60.0)
    assert stopped
    assert all(entry.failure is None for entry in entries.values())
    assert all(len(entry.laps) == 6 for entry in entries.values())


def test_the_last_question_says_how_long_it_may_take():
    machine = Machine()
    told = []
    with Round(machine.start, random.Random(0), machine.clock) as processes:
        ask = processes.side_work.ask

        def listening(process, question, limit_s):
            told.append((type(question).__name__, getattr(question, "left_s", None), limit_s))
            return ask(process, question, limit_s)

        processes.side_work.ask = listening
        race(processes, limit_s=60.0)
    finishes = [(left_s, limit_s) for name, left_s, limit_s in told if name == "Finish"]
    assert len(finishes) == 3
    assert all(0 < left_s <= limit_s < 60.0 for left_s, limit_s in finishes)


class Numbered(Round):
    """Notes in every sample which attempt it is of."""

    attempts = 0

    def attempt(self, *how):
        self.attempts += 1
        number = float(self.attempts)
        entries = super().attempt(*how)
        for entry in entries.values():
            entry.laps = {lap: s._replace(clock_hz=number) for lap, s in entry.laps.items()}
        return entries


OOM = Failure(outcome="oom", reason="no memory")


@given(st.lists(st.sampled_from([None] * 9 + [OOM, KILLED]), max_size=40), st.floats(0.5, 9.0))
def test_only_laps_that_were_taken_in_turns_have_the_same_number(fates, budget_s):
    """Whatever fails and races again."""
    fates = iter(fates)
    machine = Machine(fate=lambda case, do: next(fates, None) if do == "lap" else None)
    entries, attempts = ran(machine, budget_s=budget_s, round_=Numbered), {}
    for lap, sample in (pair for entry in entries.values() for pair in entry.laps.items()):
        assert attempts.setdefault(lap, sample.clock_hz) == sample.clock_hz


def test_who_was_killed_is_not_tried_again_once_the_budget_has_ended():
    machine = Machine(fate=of_b("finish", times=1))
    entries = ran(machine, budget_s=2.1)  # the builds and laps take 0.6 and 1.8 s
    assert entries["b"].failure is CUT_OFF
    for name in "ac":
        assert entries[name].laps, "what the others gave is kept"


def test_a_budget_that_ends_as_a_case_builds_is_no_fault_of_the_case():
    """Also where a hair of it seems left, as sums of seconds are rounded."""
    machine = Machine(seconds=lambda case: 30.0)
    left_s = lambda: max(1e-12, 5.0 - machine.now)  # noqa: E731
    with Round(machine.start, random.Random(0), machine.clock, left_s=left_s) as processes:
        entries = race(processes)
    assert [entry.failure for entry in entries.values()] == [CUT_OFF] * 3


@pytest.mark.parametrize("budget_s", [0.05, 0.4, 2.5, 4.0, 9.0])
def test_a_budget_that_ends_in_a_race_leaves_whole_pairs_of_laps_or_nothing(budget_s):
    """Three builds take 1.2 s, and 18 laps 5.4 s."""
    machine = Machine(seconds=lambda case: 0.3)
    begun_s = machine.now
    entries = ran(machine, budget_s=budget_s)
    assert machine.now - begun_s < budget_s + 3.0
    laps = {tuple(entry.laps) for entry in entries.values() if entry.failure is None}
    assert len(laps) <= 1
    for entry in entries.values():
        if entry.failure is None:
            assert entry.answer
            assert entry.laps
            assert (len(entry.laps) == 6) == (budget_s > 8)
            assert len(entry.laps) % 2 == 0
        else:
            assert entry.failure.outcome == "skipped"


def test_what_hangs_when_the_budget_ends_did_not_time_out():
    machine = Machine(seconds=lambda case: 1e6)
    entries = ran(machine, budget_s=10.0)
    assert {entry.failure.reason for entry in entries.values()} == {
        "not finished when --budget ended"
    }


@pytest.mark.parametrize(
    ("do", "answer", "named"),
    [
        ("build", {}, "iteration_s"),
        ("build", {"iteration_s": -1.0}, "1e-12 - at `$.iteration_s`"),
        ("build", {"iteration_s": math.nan}, "1e-12 - at `$.iteration_s`"),
        ("lap", {}, "sample"),
        ("lap", {"sample": [1, -0.5, 0, None, 0, 0, 0]}, "$.sample[1]`"),
        ("lap", {"sample": [9, 0.1, 0.1, None, 0.1, 0, 0]}, "9 iterations in place of 1"),
        ("finish", {"values": {}, "notes": {}}, "needs_new_process"),
    ],
)
def test_an_answer_that_lacks_or_cannot_be_what_was_asked_is_a_failure(do, answer, named):
    forged = {"outcome": "ok", **answer}
    entries = ran(Machine(fate=of_b(do, forged)))
    failure = entries["b"].failure
    assert failure.outcome == "failed"
    assert failure.reason.startswith("its process gave an impossible answer: ")
    assert named in failure.reason
    assert len(entries["a"].laps) == 6


def test_all_cases_have_the_same_inputs_and_each_race_has_its_own():
    machine = Machine()
    for _ in range(2):
        ran(machine)
    seeds = [asked.inputs_seed for asked in machine.builds]
    assert (len(seeds), len(set(seeds[:3])), len(set(seeds[3:])), len(set(seeds))) == (6, 1, 1, 2)


@pytest.mark.parametrize(
    ("iteration_s", "pairs", "iterations"),
    [(0.25, 2, 1), (0.09, 3, 1), (0.02, 6, 3), (0.001, 6, 82), (5.0, 1, 1)],
)
def test_the_laps_of_a_case_take_the_time_of_a_sample_and_are_at_least_two(
    iteration_s, pairs, iterations
):
    """Short ones are rehearsed within that time."""
    found = turns(iteration_s, Settings(sample_s=1.0))
    assert found == Turns(pairs=pairs, iterations=iterations, rehearsed=iteration_s < 0.1)
    assert found.total * iteration_s == pytest.approx(1.0, rel=0.15) or pairs == 1


def laps(cpu_s, count=4, device_s=None):
    return [Sample(1, cpu_s / count, cpu_s / count, device_s, 0.0, 0.0, 0.0)] * count


@pytest.mark.parametrize(
    ("laps", "used_s", "impossible"),
    [
        (laps(1.0), 1.1, False),
        (laps(0.01), 0.03, False),  # it waits for a core, or sleeps
        (laps(1.0), 3.9, False),  # all taken three times, under load
        (laps(1.0), math.nan, False),
        (laps(0.1), 5.0, True),
        (laps(0.1, device_s=0.1), 5.0, False),
    ],
)
def test_laps_that_cannot_be_are_told_from_those_that_can(laps, used_s, impossible):
    said = f"while the kernel counts {used_s:g} s" if impossible else ""
    assert contradiction(laps, used_s).endswith(said)
    assert bool(contradiction(laps, used_s)) == impossible


def sample(cpu_s, iterations=10, **more):
    return Sample(iterations, cpu_s, cpu_s, None, cpu_s, 0.0, 0.0)._replace(**more)


@pytest.mark.parametrize(
    ("claimed_s", "used_s", "impossible"),
    [
        (0.04, [0.05, 0.05], False),
        (0.04, [0.5, 0.05], False),  # one lap met something else
        (0.04, [0.5, 0.5, 0.05, 0.05], False),
        (0.04, [0.5, 0.5, 0.5, 0.05], True),  # and here most
        (0.04, [0.5, math.nan], False),
        (0.04, [0.5], False),  # one alone tells nothing
        (0.0067, [0.067 * 1.1] * 12, True),  # a tenth of what a usual lap takes
        (0.0393, [0.0445] * 12, False),  # the worst of 1,775 honest laps without page faults
        (0.067 / 1.6, [0.067 * 1.1] * 12, True),  # divided by so little
        (0.25 / 1.4, [0.25 * 1.1] * 12, True),
        (1e-4, [0.006, 0.006], False),  # answers take time too
    ],
)
def test_laps_may_not_claim_much_less_than_they_took(claimed_s, used_s, impossible):
    used = {lap: Usage(each_s, 0) for lap, each_s in enumerate(used_s)}
    found = understatement(dict.fromkeys(used, sample(claimed_s)), used)
    assert bool(found) == impossible


@pytest.mark.parametrize(
    ("used_s", "faults", "impossible"),
    [
        (0.233, 28675, False),  # measured: rehearsed again and again, as each call maps pages
        (0.233, 60, True),
        (0.049, 0, True),
        (0.049, 90, False),  # some of it maps pages, so that the lap was taken again
        (0.099, 90, True),
        (0.8, 28675, True),
    ],
)
def test_a_module_that_maps_pages_at_each_call_is_not_accused(used_s, faults, impossible):
    used = dict.fromkeys(range(6), Usage(used_s, faults))
    assert bool(understatement(dict.fromkeys(used, sample(0.0199)), used)) == impossible


def test_rehearsals_on_several_cores_take_more_cpu_time():
    used = dict.fromkeys(range(2), Usage(0.8, 30_000))
    for wall_s, impossible in ((0.02, True), (0.005, False)):
        lap = sample(0.02, wall_s=wall_s)
        assert bool(understatement(dict.fromkeys(used, lap), used)) == impossible
    lap = sample(0.02, 1)
    assert contradiction([lap] * 4, 2.0)
    assert not contradiction([lap._replace(wall_s=0.005)] * 4, 2.0)


def test_pages_that_a_process_maps_are_counted():
    begun = host.faults(os.getpid())
    with mmap.mmap(-1, 1000 * mmap.PAGESIZE) as memory:
        for page in range(1000):
            memory[page * mmap.PAGESIZE] = 1
        assert host.faults(os.getpid()) >= begun + 1000
    assert host.faults(1 << 22) == 0


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({}, ""),
        ({"forward_s": 0.1}, "phases of 0.5 s in a lap of 1 s"),
        ({"wall_s": 1e-3}, "1 s of CPU time in a lap of 0.001 s"),
        ({"device_s": 0.1, "forward_s": 0.1}, ""),
    ],
)
def test_the_times_of_a_lap_agree(times, said):
    usual = Sample(10, 1.0, 1.0, None, 0.6, 0.3, 0.1, clock=Clock.CPU)
    assert inconsistency([usual._replace(**times)]) == said


def test_cpu_time_of_a_process_is_known_to_the_nanosecond():
    before = time.process_time()
    assert before <= host.cpu_s(os.getpid()) <= time.process_time()
    assert math.isnan(host.cpu_s(1 << 22))


def test_cpu_time_is_that_of_the_process_unless_the_kernel_hides_it(monkeypatch):
    begun = host.user_s(os.getpid())
    while time.process_time() < begun + 0.5:
        pass
    assert host.user_s(os.getpid()) - begun >= 0
    assert math.isnan(host.user_s(1 << 22))
    monkeypatch.setattr(host, "BELIEVED_S", 0.0)
    assert math.isnan(host.user_s(os.getpid())), "counts that cannot be true"


def test_no_duration_is_read_from_a_clock_that_can_be_set():
    texts = {path: path.read_text() for path in Path(host.__file__).parents[1].rglob("*.py")}
    wall = ("time.time(", "time_ns(", "from time import")
    assert not [path for path, text in texts.items() if any(word in text for word in wall)]


def test_laps_that_were_not_rehearsed_may_take_no_time_for_that():
    for rehearsed in (True, False):
        used = dict.fromkeys(range(4), Usage(0.4, 0, rehearsed))
        assert bool(understatement(dict.fromkeys(used, sample(0.2, 1)), used)) != rehearsed
