"""Visits of fresh processes: their order, and faults."""

import math
import re
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.commands.check.cases import BASE, HEAD, CheckedCase, CheckPlan, Counted
from attnbench.commands.check.finding import CheckAnswer, clock_of
from attnbench.commands.check.measuring import (
    Failed,
    Looks,
    Runner,
    TreeRace,
    build_of,
    has_waited,
    layout,
)
from attnbench.commands.check.pairs import Allotment
from attnbench.commands.check.rule import evident_verdict
from attnbench.records import Clock, Mode, Sample, Selection, Workload
from attnbench.running.race import Entry
from tests.commands.check.repositories import Repository, planted
from tests.doubles.checks import VISIT_S, Simulated, simulated


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


@dataclass(frozen=True, kw_only=True)
class Ending(Simulated):
    """A race in which head ends as `counted` says."""

    counted: Counted

    def run(self, processes):
        raise Failed(HEAD, self.counted)


@pytest.mark.parametrize(
    "counted",
    [Counted(outcome="oom", reason="it was killed"), Counted(outcome="failed", reason="it broke")],
)
def test_what_fails_while_it_is_timed_fails_unless_it_was_killed(counted):
    _, report = simulated(60.0, 1.0, 1.0, race=Ending, counted=counted)
    (finding,) = report.findings
    assert finding.answer is (CheckAnswer.KILLED if counted.was_killed else CheckAnswer.BREAKS)
    assert report.exit_code(strict=False) == (3 if counted.was_killed else 1)


def counted_pairs(looks):
    """The number of pairs of each case and look, where there are any."""
    taken = {
        (n, look): len(case.looks[look]) for n, case in enumerate(looks.cases) for look in (0, 1)
    }
    return {look: pairs for look, pairs in taken.items() if pairs}


def verdicts(report):
    return [str(finding.verdict) for finding in report.findings]


@pytest.mark.parametrize(
    ("budget_s", "slowdown", "visits", "expected"),
    [
        (200.0, 1.0, {(0, 0): 10, (1, 0): 10, (0, 1): 16}, ["slower", "same"]),
        # a busy machine takes fewer pairs before it leaves out cases
        (170.0, 3.0, {(0, 0): 6, (1, 0): 6, (0, 1): 5}, ["slower", "same"]),
        # what is suspected is confirmed first; one visit tells how busy the machine is
        (70.0, 3.0, {(0, 0): 4, (1, 0): 2, (0, 1): 5}, ["slower", "unsure"]),
    ],
)
def test_what_is_suspected_is_confirmed_before_others_are_looked_at(
    budget_s, slowdown, visits, expected
):
    looks, report = simulated(budget_s, slowdown, 1.5, 1.0)
    assert counted_pairs(looks) == visits
    assert verdicts(report) == expected
    assert report.exit_code(strict=False) == 1


def test_what_fails_leaves_its_time_to_others():
    looks, report = simulated(70.0, 2.0, 0.0, 1.5)
    assert counted_pairs(looks) == {(1, 0): 7, (1, 1): 5}
    assert [(found.metric, found.fails) for found in report.findings] == [
        ("runs", True),
        ("time_s", True),
    ]


def test_a_case_that_the_budget_leaves_out_does_not_pass():
    looks, report = simulated(3.0, 2.0, 1.5)
    assert counted_pairs(looks) == {}
    (finding,) = report.unchecked_findings
    assert finding.reasons == "no time was left; needs about --budget 40s"
    assert report.exit_code(strict=False) == 2


@pytest.mark.parametrize("slowdown", [1.0, 4.0])
@pytest.mark.parametrize("budget_s", [30.0, 60.0])
def test_the_budget_that_is_advised_is_enough(budget_s, slowdown):
    """And no more than it takes: four pairs of each case, and five to confirm what is slower."""
    ratios = (1.03, 1.0, 1.04, 1.0)
    _, report = simulated(budget_s, slowdown, *ratios)
    if advised := {
        re.search(r"needs about --budget (\d+)(s|m)$", f.reasons) for f in report.unsure_findings
    }:
        budget_s = {60 * int(found[1]) if found[2] == "m" else int(found[1]) for found in advised}
        (budget_s,) = budget_s
        least_s = slowdown * VISIT_S * (4 * 4 + 2 * 5)
        assert least_s <= budget_s <= 1.2 * least_s + 60
    _, report = simulated(float(budget_s), slowdown, *ratios)
    assert verdicts(report) == ["slower", "same"] * 2


def test_many_cases_get_fewer_samples_and_are_decided_after_fewer_pairs():
    """Where they have time for all pairs that are planned, they take these."""
    plan = CheckPlan()
    rounds = [plan.fitted_to_time(cases, 300.0).rounds for cases in (1, 20, 60, 1000)]
    assert rounds == sorted(rounds, reverse=True)
    assert (rounds[0], rounds[-1]) == (plan.rounds, 4)
    assert plan.fitted_to_time(1000, math.inf) == plan
    earliest = [Allotment.for_pairs(plan, pairs).earliest for pairs in (1.0, 12.0, 20.0, math.inf)]
    assert earliest == [4, 6, 10, 10]


@pytest.mark.parametrize(("ratio", "codes"), [(1.5, (1, 1)), (1.03, (0, 3)), (1.0, (0, 0))])
def test_without_time_to_confirm_a_clear_slowdown_fails(ratio, codes):
    looks, report = simulated(14.0, 2.0, ratio)
    assert counted_pairs(looks) == {(0, 0): 3}
    assert not report.unchecked_findings
    assert tuple(map(report.exit_code, (False, True))) == codes


@pytest.mark.parametrize(("away_s", "expected"), [(0.0, False), (0.9, True)])
def test_the_time_in_which_a_case_sleeps_is_not_called_cpu_time(away_s, expected):
    taken = Sample(1, 1.0, 1.0 - away_s, None, 1.0, 0.0, 0.0, clock=Clock.CPU, waited_s=0.0)
    assert has_waited(Entry(laps={0: taken, 1: taken})) == expected
    cases = [CheckedCase(selection=Selection(name="a"), waits=expected)]
    words = "CPU time and waiting time" if expected else "CPU time"
    assert clock_of(cases, "CPU time") == words


def test_what_lies_far_apart_in_every_pair_needs_no_interval():
    _, report = simulated(6.0, 2.0, 50.0)
    (finding,) = report.findings
    assert (finding.verdict, finding.fails, finding.low) == ("slower", True, None)
    assert finding.ratio == pytest.approx(50.0, rel=0.01)
    assert report.compared_cases == (finding.case,)
    assert evident_verdict([((1.0, 1.1), (2.0, 2.1))]) is None
    assert evident_verdict([((1.0, 1.1), (9.0, 60.0))]) is None
    assert evident_verdict([((1.0, 1.1), (3.0, 2.3))] * 2) == "slower"
    assert evident_verdict([((3.0, 2.3), (1.0, 1.1))] * 2) == "faster"
    assert evident_verdict([((1.0, 1.1), (3.0, 2.3)), ((1.0, 1.1), (1.0, 2.3))]) is None


def test_one_pair_of_every_case_comes_before_a_second_of_any():
    """So that the third of five, which is slower, is found within a budget for few pairs."""
    looks, report = simulated(60.0, 1.0, 1.0, 1.0, 4.0, 1.0, 1.0)
    assert all(looks.cases[n].looks[0] for n in range(5))
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
    case = CheckedCase(selection=Selection(name="small.py:CARD"), workload=small)
    looks = Looks(plan, Runner(server=server), dict.fromkeys((BASE, HEAD), made.folder))
    looks.races[case] = TreeRace(builds={HEAD: build_of(case)}, rounds=1)
    for pair in (0, 1, 2):
        looks.visit(case, 0, pair)
    first, second, third = (line.split() for line in told.read_text().splitlines())
    assert (first, second[0]) == (third, "1")
    assert len(first[1]) != len(second[1])
