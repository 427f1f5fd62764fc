"""Visits of fresh processes: their order, and faults."""

import math
import random
import re
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from attnbench.errors import OverBudget
from attnbench.gate.cases import (
    CheckedCase,
    CheckPlan,
    Counted,
    MechanismPair,
    function_case,
    workload_request,
)
from attnbench.gate.finding import Report, broken, reported, runs
from attnbench.gate.measuring import CheckSession, Runner, crowding, layout
from attnbench.gate.pairs import AGAIN, BASE, HEAD, Failed, TreeRace, tree_round
from attnbench.metrics import TIME
from attnbench.records import Level, Mode, Selection, Workload
from tests.cases import CASES
from tests.gate.repositories import Repository, planted

PLAN = CheckPlan(
    lengths=(64,),
    modes=(Mode.INFERENCE,),
    width=32,
    heads=2,
    tokens=64,
    iteration_s=0.002,
    rounds=6,
)
SMALL = Selection(name="small.py:CARD")
CASE = CheckedCase(
    compared=MechanismPair(base=SMALL, head=SMALL), workload=PLAN.workload(Mode.INFERENCE, 64)
)


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
    assert plan.rounds_for(3, 0.005) == plan.rounds
    assert 4 <= plan.rounds_for(3, 0.025) < 8
    assert plan.rounds_for(3, 60.0) == 4


def test_a_process_that_dies_or_hangs_is_reported_and_replaced(server, tmp_path):
    made = Repository(tmp_path / "repo")
    made.write("dies.py", planted("import os; os._exit(3)"))
    made.write("hangs.py", planted("import time; time.sleep(600)"))
    with tree_round(server, {BASE: made.folder}, random.Random(0)) as processes:
        for name, outcome in (("dies.py", "crashed"), ("small.py", ""), ("hangs.py", "timeout")):
            asked = {**CASE.build_request(BASE), "mechanism": f"{name}:CARD"}
            race = Quick(builds={BASE: asked}, rounds=1)
            if not outcome:
                assert len(race.run(processes)[TIME][BASE]) == 2
                continue
            with pytest.raises(Failed) as failed:
                race.run(processes)
            assert failed.value.outcome == outcome


OK, KILLED = Counted(outcome="ok"), Counted(outcome="oom", reason="the kernel killed the process")
TERMINATED = Counted(outcome="crashed", cause="killed", reason="by signal 15")
LOST = "could not be measured on head: the kernel killed the process"


@pytest.mark.parametrize(
    ("first", "again", "outcome", "words"),
    [
        ((OK, KILLED), (OK, OK), "ok", ""),
        ((OK, KILLED), (OK, KILLED), "oom", "the kernel killed the process"),
        ((OK, TERMINATED), (OK, TERMINATED), "crashed", "by signal 15"),
        ((OK, KILLED), (KILLED, KILLED), "skipped", LOST),
        ((KILLED, OK), (OK, KILLED), "skipped", LOST),
        ((OK, KILLED), (), "skipped", LOST),
    ],
)
def test_a_side_is_at_fault_only_where_it_is_killed_twice_and_the_other_runs_twice(
    first, again, outcome, words, monkeypatch, tmp_path
):
    case = replace(CASE, counted={})
    trees = {BASE: tmp_path, HEAD: tmp_path}
    session = CheckSession(PLAN, [case], Runner(server=MagicMock()), trees)
    answers = {BASE: [*first[:1], *again[:1]], HEAD: [*first[1:], *again[1:]]}

    def count_side(side, cases):
        if not answers[side]:
            raise OverBudget
        return [answers[side].pop(0)]

    monkeypatch.setattr(session, "count_side", count_side)
    session.count()
    assert (case.counted[HEAD].outcome, case.counted[HEAD].reason) == (outcome, words)
    finding = runs("m", "c", case.counted[BASE], case.counted[HEAD])
    if outcome != "ok":
        assert (finding.fails, finding.unmeasured) == (outcome != "skipped", outcome == "skipped")


@pytest.mark.parametrize(
    ("kills", "fails", "unmeasured"),
    [((HEAD,), False, False), ((HEAD, HEAD), True, False), ((BASE, HEAD), False, True)],
)
def test_a_kill_while_timing_costs_a_visit_and_a_second_one_the_case(kills, fails, unmeasured):
    case = replace(CASE, kills=[])
    for side in kills:
        case.fail(Failed(side, {"outcome": "oom", "reason": "killed"}))
    found = [(finding.fails, finding.unmeasured) for finding in broken([case])]
    assert found == ([(fails, unmeasured)] if len(kills) > 1 else [])


class Machine:
    """A server whose clock moves only while cases are timed, `slowdown` times as long as alone."""

    def __init__(self, slowdown=1.0):
        self.now, self.end_s, self.slowdown, self.layouts = 0.0, math.inf, slowdown, []

    @property
    def left_s(self):
        return self.end_s - self.now

    def of_layout(self, number):
        self.layouts.append(number)
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
            raise Failed(HEAD, {"outcome": "failed", "reason": "it broke"})
        laps = {BASE: (1.0,) * 4, AGAIN: (1.0,) * 4}
        return {TIME: {**laps, HEAD: tuple(self.ratio * x for x in (1.0, 1.0, 1.0, 1.001))}}


def simulated(monkeypatch, budget_s, slowdown, *ratios):
    """A check of functions with these ratios: the looks at each, in order, and its report."""
    machine, said, looks = Machine(slowdown), [], []
    machine.end_s = budget_s
    monkeypatch.setattr("attnbench.gate.measuring.tree_round", lambda *_: nullcontext())
    monkeypatch.setattr("attnbench.gate.measuring.time.monotonic", lambda: machine.now)
    runner = Runner(server=machine, announce=said.append)
    cases = [function_case(f"m:f{number}") for number in range(len(ratios))]
    session = CheckSession(CheckPlan(budget_s=budget_s), cases, runner, dict.fromkeys((BASE, HEAD)))
    ok = dict.fromkeys((BASE, HEAD), OK)
    monkeypatch.setattr(session, "count", lambda: [case.counted.update(ok) for case in cases])

    def size():
        for case, ratio in zip(cases, ratios, strict=True):
            case.race = Simulated(builds={}, machine=machine, ratio=ratio)

    visit = session.visit

    def noted(visited, stage, pair):
        before = [len(case.stages[stage]) for case in cases]
        visit(visited, stage, pair)
        after = [len(case.stages[stage]) for case in cases]
        looks.extend((n, stage) for n in range(len(cases)) if after[n] > before[n])

    monkeypatch.setattr(session, "size", size)
    monkeypatch.setattr(session, "visit", noted)
    session.race()
    report = reported(Report(base="a", head="b", findings=()), session)
    assert machine.now <= budget_s
    return {look: looks.count(look) for look in looks}, report, said


def verdicts(report):
    return [str(finding.verdict) for finding in report.findings]


def test_with_time_all_is_looked_at_and_suspects_twice(monkeypatch):
    looks, report, said = simulated(monkeypatch, 200.0, 1.0, 1.5, 1.0)
    assert looks == {(0, 0): 10, (1, 0): 10, (0, 1): 16}
    assert verdicts(report) == ["slower", "same"]
    assert said == ["timing 2 cases: about 40 s, or 104 s if every one has to be confirmed"]


def test_a_busy_machine_halves_looks_before_it_leaves_out_cases(monkeypatch):
    looks, report, said = simulated(monkeypatch, 170.0, 3.0, 1.5, 1.0)
    assert looks == {(0, 0): 6, (1, 0): 6, (0, 1): 16}
    assert verdicts(report) == ["slower", "same"]
    assert said[0].endswith("or 312 s if every one has to be confirmed; 158 s are left")


def test_what_is_suspected_is_confirmed_before_others_are_looked_at(monkeypatch):
    looks, report, _ = simulated(monkeypatch, 100.0, 3.0, 1.5, 1.0)
    assert looks == {(0, 0): 7, (1, 0): 1, (0, 1): 8}, "one visit tells how busy the machine is"
    assert verdicts(report) == ["slower", "unsure"]
    assert report.exit_code(strict=False) == 1


def test_what_fails_leaves_its_time_to_others(monkeypatch):
    looks, report, _ = simulated(monkeypatch, 70.0, 2.0, 0.0, 1.5)
    assert looks == {(1, 0): 8, (1, 1): 8}
    assert [(found.metric, found.fails) for found in report.findings] == [
        ("runs", True),
        ("time_s", True),
    ]


def test_a_case_that_the_budget_leaves_out_does_not_pass(monkeypatch):
    looks, report, _ = simulated(monkeypatch, 3.0, 2.0, 1.5)
    assert looks == {}
    (finding,) = report.unchecked
    assert finding.reason == "no time was left (--budget 120s)"
    assert report.exit_code(strict=False) == 2


@pytest.mark.parametrize("slowdown", [1.0, 4.0])
@pytest.mark.parametrize("budget_s", [30.0, 60.0, 100.0])
def test_the_budget_that_is_advised_is_enough(budget_s, slowdown, monkeypatch):
    ratios = (1.03, 1.0, 1.04, 1.0)
    _, report, _ = simulated(monkeypatch, budget_s, slowdown, *ratios)
    advised = {re.search(r"\(--budget (\d+)s\)", f.reason)[1] for f in report.unsure}
    (enough,) = advised
    looks, report, _ = simulated(monkeypatch, float(enough), slowdown, *ratios)
    assert verdicts(report) == ["slower", "same"] * 2
    assert looks == {**{(n, 0): 10 for n in range(4)}, (0, 1): 16, (2, 1): 16}


@pytest.mark.parametrize(("ratio", "codes"), [(1.5, (1, 1)), (1.03, (0, 3)), (1.0, (0, 0))])
def test_without_time_to_confirm_a_clear_slowdown_fails(ratio, codes, monkeypatch):
    looks, report, _ = simulated(monkeypatch, 14.0, 2.0, ratio)
    assert looks == {(0, 0): 3}
    assert not report.unchecked
    assert tuple(map(report.exit_code, (False, True))) == codes


@pytest.mark.parametrize(("load", "times"), [(0.2, 1.0), (7.0, 4.0), (None, 1.0)])
def test_a_loaded_machine_is_expected_to_take_longer(load, times, monkeypatch):
    monkeypatch.setattr("attnbench.gate.measuring.load", lambda: load)
    monkeypatch.setattr("attnbench.gate.measuring.cores", lambda: 2)
    assert crowding() == times


def test_two_memory_layouts_take_turns_and_two_others_confirm(monkeypatch):
    assert [layout(0, pair) for pair in range(4)] == [0, 1, 0, 1]
    assert [layout(1, pair) for pair in range(4)] == [2, 3, 2, 3]


def test_layouts_have_other_hashes_and_another_environment(server, tmp_path):
    """A mechanism says what its process has."""
    made = Repository(tmp_path / "repo")
    told = tmp_path / "told"
    has = "os.environ['PYTHONHASHSEED'], os.environ['ATTNBENCH_LAYOUT']"
    says = f"print({has}, file=open({str(told)!r}, 'a'))"
    made.write("small.py", f"import os\n{says}\n" + planted(""))
    case = CheckedCase(compared=CASE.compared, workload=CASE.workload)
    case.race = TreeRace(builds={HEAD: CASE.build_request(HEAD)}, rounds=1)
    measuring = CheckSession(PLAN, [case], Runner(server=server), {HEAD: made.folder})
    for pair in (0, 1, 2):
        measuring.visit([case], 0, pair)
    first, second, third = (line.split() for line in told.read_text().splitlines())
    assert (first, second[0]) == (third, "1")
    assert len(first[1]) != len(second[1])


class Quick(TreeRace):
    """Gives up early."""

    timeout_s = 3.0


@pytest.mark.long
def test_no_wait_is_longer_than_the_remaining_budget(server, tmp_path):
    made = Repository(tmp_path / "repo")
    made.write("hangs.py", "import time; time.sleep(600)\n" + planted(""))
    over = pytest.raises(OverBudget, match=r"waiting for hangs\.py:CARD")
    with server.process(made.folder) as worker, server.until(time.monotonic()), over:
        worker.ask(300.0, do="forms", mechanism="hangs.py:CARD")
    assert not worker.alive
    assert server.left_s == float("inf")


def test_a_request_to_an_older_version_has_only_known_fields():
    asked = workload_request(PLAN.workload(Mode.TRAINING, 64))
    assert set(asked) == {
        *("batch", "seq_len", "width", "heads", "level", "mode", "dtype", "device")
    }
    model = workload_request(replace(PLAN, level=Level.MODEL).workload(Mode.TRAINING, 64))
    assert model["shell"] == {"dropout": 0.2}


@given(CASES)
def test_a_request_holds_the_whole_workload(case):
    """Defaults of the shell may differ between versions, so other values must be given."""
    assert convert(workload_request(case.workload), Workload) == case.workload
