"""Visits of fresh processes: their order, and faults."""

import re
from contextlib import nullcontext
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.errors import OverBudget
from attnbench.gate import measuring
from attnbench.gate.cases import AGAIN, BASE, HEAD, CheckedCase, CheckPlan, Counted
from attnbench.gate.finding import Report, clock_of, reported
from attnbench.gate.measuring import Failed, Looks, Runner, TreeRace, layout, waits
from attnbench.gate.rule import evident
from attnbench.records import Clock, Mode, Sample, Selection, Workload
from attnbench.run.race import Entry
from tests.gate.repositories import Repository, planted


@given(st.floats(1e-6, 100), st.sampled_from([1, 8]), st.sampled_from([16, 512, 1 << 20]))
def test_a_batch_lasts_as_long_as_planned_and_no_longer_than_twice(took, batch, seq_len):
    found = CheckPlan().batch_for(Workload(batch=batch, seq_len=seq_len), took)
    assert found.bit_count() == 1
    assert found * seq_len <= max(1 << 16, seq_len)
    if 1 < found < (1 << 16) // seq_len:
        assert found * took / batch * 1.0001 >= 0.005
        assert found * took / batch <= 0.0101


def test_long_iterations_get_fewer_rounds():
    plan = CheckPlan()
    assert [plan.rounds_for(each_s) for each_s in (0.005, 60.0)] == [plan.rounds, 4]
    assert 4 <= plan.rounds_for(0.025) < 8


OK = Counted(outcome="ok")


@pytest.mark.parametrize(
    "counted",
    [Counted(outcome="oom", reason="it was killed"), Counted(outcome="failed", reason="it broke")],
)
def test_what_fails_while_it_is_timed_fails_unless_it_was_killed(counted, monkeypatch):
    def fails(*_):
        raise Failed(HEAD, counted)

    _, report = simulated(monkeypatch, 60.0, 1.0, 1.0, run=fails)
    (finding,) = report.findings
    assert (finding.fails, finding.unmeasured) == (not counted.killed, counted.killed)
    assert report.exit_code(strict=False) == (3 if counted.killed else 1)


class Machine:
    """A server whose clock moves only while cases are timed, `slowdown` times as long as alone."""

    def __init__(self, slowdown, budget_s):
        self.now, self.end_s, self.slowdown = 0.0, budget_s, slowdown

    @property
    def left_s(self):
        return self.end_s - self.now

    def of_layout(self, number):
        return self

    def wait(self):
        pass


@dataclass(frozen=True, kw_only=True)
class Simulated(TreeRace):
    """A visit to a case takes two seconds; head takes `ratio` times as long as base."""

    machine: Machine
    ratio: float
    cost_s = 2.0

    def run(self, processes):
        self.machine.now += self.cost_s * self.machine.slowdown
        if self.machine.left_s < 0:
            self.machine.now = self.machine.end_s
            raise OverBudget
        if not self.ratio:
            raise Failed(HEAD, Counted(outcome="failed", reason="it broke"))
        laps = {BASE: (1.0,) * 4, AGAIN: (1.0,) * 4}
        return {**laps, HEAD: tuple(self.ratio * x for x in (1.0, 1.0, 1.0, 1.001))}


def simulated(monkeypatch, budget_s, slowdown, *ratios, run=Simulated.run):
    """A check of functions with these ratios: how often each was looked at, and its report."""
    machine = Machine(slowdown, budget_s)
    monkeypatch.setattr(measuring, "Round", lambda *_: nullcontext())
    monkeypatch.setattr(measuring.time, "monotonic", lambda: machine.now)
    monkeypatch.setattr(Simulated, "run", run)
    cases = [CheckedCase(asked=Selection(name=f"m:f{n}")) for n in range(len(ratios))]
    for case in cases:
        case.counted |= dict.fromkeys((BASE, HEAD), OK)
    monkeypatch.setattr(measuring, "count", lambda *_: None)
    looks = Looks(CheckPlan(budget_s=budget_s), Runner(server=machine), {BASE: None, HEAD: None})
    races = (Simulated(builds={}, machine=machine, ratio=ratio) for ratio in ratios)
    looks.races = dict(zip(cases, races, strict=True))
    looks.take(cases)
    report = reported(Report(base="a", head="b"), looks)
    assert machine.now <= budget_s
    monkeypatch.undo()
    taken = {(n, look): len(case.looks[look]) for n, case in enumerate(cases) for look in (0, 1)}
    return {look: visits for look, visits in taken.items() if visits}, report


def verdicts(report):
    return [str(finding.verdict) for finding in report.findings]


@pytest.mark.parametrize(
    ("budget_s", "slowdown", "visits", "expected"),
    [
        (200.0, 1.0, {(0, 0): 10, (1, 0): 10, (0, 1): 16}, ["slower", "same"]),
        # a busy machine halves looks before it leaves out cases
        (170.0, 3.0, {(0, 0): 6, (1, 0): 6, (0, 1): 8}, ["slower", "same"]),
        # what is suspected is confirmed first; one visit tells how busy the machine is
        (93.0, 3.0, {(0, 0): 5, (1, 0): 2, (0, 1): 8}, ["slower", "unsure"]),
    ],
)
def test_what_is_suspected_is_confirmed_before_others_are_looked_at(
    budget_s, slowdown, visits, expected, monkeypatch
):
    looks, report = simulated(monkeypatch, budget_s, slowdown, 1.5, 1.0)
    assert looks == visits
    assert verdicts(report) == expected
    assert report.exit_code(strict=False) == 1


def test_what_fails_leaves_its_time_to_others(monkeypatch):
    looks, report = simulated(monkeypatch, 70.0, 2.0, 0.0, 1.5)
    assert looks == {(1, 0): 8, (1, 1): 8}
    assert [(found.metric, found.fails) for found in report.findings] == [
        ("runs", True),
        ("time_s", True),
    ]


def test_a_case_that_the_budget_leaves_out_does_not_pass(monkeypatch):
    looks, report = simulated(monkeypatch, 3.0, 2.0, 1.5)
    assert looks == {}
    (finding,) = report.unchecked
    assert finding.reason == "no time was left (--budget 120s)"
    assert report.exit_code(strict=False) == 2


@pytest.mark.parametrize("slowdown", [1.0, 4.0])
@pytest.mark.parametrize("budget_s", [30.0, 60.0])
def test_the_budget_that_is_advised_is_enough(budget_s, slowdown, monkeypatch):
    ratios = (1.03, 1.0, 1.04, 1.0)
    _, report = simulated(monkeypatch, budget_s, slowdown, *ratios)
    advised = {re.search(r"\(--budget (\d+)s\)", f.reason)[1] for f in report.unsure}
    (enough,) = advised
    looks, report = simulated(monkeypatch, float(enough), slowdown, *ratios)
    assert verdicts(report) == ["slower", "same"] * 2
    assert looks == {**{(n, 0): 10 for n in range(4)}, (0, 1): 16, (2, 1): 16}


@pytest.mark.parametrize(("ratio", "codes"), [(1.5, (1, 1)), (1.03, (0, 3)), (1.0, (0, 0))])
def test_without_time_to_confirm_a_clear_slowdown_fails(ratio, codes, monkeypatch):
    looks, report = simulated(monkeypatch, 14.0, 2.0, ratio)
    assert looks == {(0, 0): 3}
    assert not report.unchecked
    assert tuple(map(report.exit_code, (False, True))) == codes


@pytest.mark.parametrize(("away_s", "expected"), [(0.0, False), (0.9, True)])
def test_the_time_in_which_a_case_sleeps_is_not_called_cpu_time(away_s, expected):
    taken = Sample(1, 1.0, 1.0 - away_s, None, 1.0, 0.0, 0.0, clock=Clock.CPU, waited_s=0.0)
    assert waits(Entry(laps={0: taken, 1: taken})) == expected
    cases = [CheckedCase(asked=Selection(name="a"), waits=expected)]
    words = "CPU time and waiting time" if expected else "CPU time"
    assert clock_of(cases, "CPU time") == words


def test_what_lies_far_apart_in_every_pair_needs_no_interval(monkeypatch):
    _, report = simulated(monkeypatch, 6.0, 2.0, 50.0)
    (finding,) = report.findings
    assert (finding.verdict, finding.fails, finding.low) == ("slower", True, None)
    assert finding.ratio == pytest.approx(50.0, rel=0.01)
    assert report.compared == (finding.case,)
    assert evident([((1.0, 1.1), (2.0, 2.1))]) is None
    assert evident([((1.0, 1.1), (9.0, 60.0))]) is None
    assert evident([((1.0, 1.1), (3.0, 2.3))] * 2) == "slower"
    assert evident([((3.0, 2.3), (1.0, 1.1))] * 2) == "faster"
    assert evident([((1.0, 1.1), (3.0, 2.3)), ((1.0, 1.1), (1.0, 2.3))]) is None


def test_one_pair_of_every_case_comes_before_a_second_of_any(monkeypatch):
    """So that the third of five, which is slower, is found within a budget for few pairs."""
    looks, report = simulated(monkeypatch, 60.0, 1.0, 1.0, 1.0, 4.0, 1.0, 1.0)
    assert all(looks[n, 0] >= 1 for n in range(5))
    assert [finding.fails for finding in report.findings] == [n == 2 for n in range(5)]


def test_two_memory_layouts_take_turns_and_two_others_confirm(server, tmp_path):
    """A mechanism says which hash seed and environment its process has."""
    assert [layout(0, pair) for pair in range(4)] == [0, 1, 0, 1]
    assert [layout(1, pair) for pair in range(4)] == [2, 3, 2, 3]
    made, told = Repository(tmp_path / "repo"), tmp_path / "told"
    has = "os.environ['PYTHONHASHSEED'], os.environ['ATTNBENCH_LAYOUT']"
    says = f"print({has}, file=open({str(told)!r}, 'a'))"
    made.write("small.py", f"import os\n{says}\n" + planted(""))
    plan = CheckPlan(width=32, heads=2, tokens=64)
    small = plan.workload(Mode.INFERENCE, 64)
    case = CheckedCase(asked=Selection(name="small.py:CARD"), workload=small)
    looks = Looks(plan, Runner(server=server), dict.fromkeys((BASE, HEAD), made.folder))
    looks.races[case] = TreeRace(builds={HEAD: case.build_request()}, rounds=1)
    for pair in (0, 1, 2):
        looks.visit(case, 0, pair)
    first, second, third = (line.split() for line in told.read_text().splitlines())
    assert (first, second[0]) == (third, "1")
    assert len(first[1]) != len(second[1])
