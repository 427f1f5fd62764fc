"""Visits of fresh processes: order, faults, and the extra work of a selftest."""

import random
import time
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from attnbench.gate.cases import CheckedCase, CheckPlan, MechanismPair, workload_request
from attnbench.gate.measuring import CheckSession, Runner
from attnbench.gate.selftest import prepare, visits
from attnbench.metrics import TIME
from attnbench.records import Level, Mode, Selection, Workload
from attnbench.run.pairs import BASE, HEAD, Failed, TreeRace, tree_round
from attnbench.run.workers import OverBudget
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


def test_extra_work_is_work(server, tmp_path):
    tree = Repository(tmp_path / "repo").folder
    injected = prepare(server, tree, CASE, (0.0, 2.0), PLAN)
    laps = next(visits(server, tree, injected, random.Random(0), float("inf")))
    middle = {name: sorted(times)[len(times) // 2] for name, times in laps.items()}
    assert 1.5 < middle["+200%"] / middle[BASE] < 6
    assert 0.5 < middle["+0%"] / middle[BASE] < 2


def test_extra_work_of_every_other_call_is_in_every_other_sample(server, tmp_path):
    tree = Repository(tmp_path / "repo").folder
    asked = {**CASE.build_request(BASE), "extra": 3000, "every": 2}
    race = TreeRace(builds={BASE: asked}, rounds=4)
    with tree_round(server, {BASE: tree}, random.Random(0)) as processes:
        times = race.run(processes)[TIME][BASE]
    odd, even = times[::2], times[1::2]
    slow, fast = (odd, even) if sum(odd) > sum(even) else (even, odd)
    assert sorted(slow)[1] > 2 * sorted(fast)[2]


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


@pytest.mark.parametrize(("times", "outcome"), [(1, "ok"), (2, "crashed")])
def test_what_is_killed_is_counted_once_more(times, outcome, monkeypatch, tmp_path):
    """Someone else may have killed it."""
    answers = [{"outcome": "crashed", "cause": "killed"}] * times + [{"outcome": "ok"}]
    started = []

    class Process:
        alive = False

        def ask(self, *_, **__):
            return answers.pop(0)

        def end(self):
            pass

    def loaded(self, side):
        started.append(side)
        return Process()

    monkeypatch.setattr(CheckSession, "loaded", loaded)
    measuring = CheckSession(PLAN, [CASE], MagicMock(), {BASE: tmp_path, HEAD: tmp_path})
    assert [counted.outcome for counted in measuring.count_side(HEAD)] == [outcome]
    assert started == [HEAD] * 2


class Costly(TreeRace):
    """A visit takes two seconds."""

    cost_s = 2.0


def test_a_case_gets_what_those_before_it_leave_of_the_budget(tmp_path):
    cases = [replace(CASE, race=Costly(builds={})) for _ in range(3)]
    runner = Runner(server=SimpleNamespace(left_s=15.0), machine=MagicMock())
    plan = replace(PLAN, pairs=3, confirm=4, budget_s=20.0)
    measuring = CheckSession(plan, cases, runner, {HEAD: tmp_path})
    assert measuring.affordable(cases, (0,)) == cases[:2]
    assert [case.skipped for case in cases] == ["", "", "needs --budget 30s"]
    assert measuring.affordable(cases, (0, 1)) == cases[:1]
    assert measuring.affordable(cases, (1,)) == cases[:1]
    assert measuring.forecast(cases) == (
        "timing 3 cases: about 18 s, or 42 s if every one has to be confirmed;"
        " for that it needs --budget 60s"
    )


def test_what_is_suspected_is_confirmed_before_others_are_looked_at(tmp_path, monkeypatch):
    """With time for one case and its confirmation, and then for one look at another."""
    cases = [
        CheckedCase(compared=CASE.compared, workload=workload, race=Costly(builds={}))
        for workload in (CASE.workload, replace(CASE.workload, seq_len=128))
    ]
    server = SimpleNamespace(left_s=20.0)
    runner = Runner(server=server, machine=MagicMock())
    plan = replace(PLAN, pairs=3, confirm=4, budget_s=20.0)
    measuring, looks = CheckSession(plan, cases, runner, {HEAD: tmp_path}), []

    def visit(visited, number):
        server.left_s -= sum(case.race.cost_s for case in visited)
        looks.extend((cases.index(case), number) for case in visited)
        for case in visited:
            laps = {BASE: (1.0,) * 4, "again": (1.0,) * 4, HEAD: (1.5, 1.5, 1.5, 1.51)}
            case.stages[number].append({TIME: laps})

    monkeypatch.setattr(measuring, "visit", visit)
    waiting = cases
    while waiting := measuring.race_and_confirm(waiting):
        pass
    assert looks == [(0, 0)] * 3 + [(0, 1)] * 4 + [(1, 0)] * 3
    assert cases[1].skipped == "needs --budget 30s"


def test_what_confirms_has_other_hashes_and_another_environment(server, tmp_path):
    """A mechanism of either stage says what its process has."""
    made = Repository(tmp_path / "repo")
    told = tmp_path / "told"
    has = "os.environ['PYTHONHASHSEED'], os.environ['ATTNBENCH_LAYOUT']"
    says = f"print({has}, file=open({str(told)!r}, 'a'))"
    made.write("small.py", f"import os\n{says}\n" + planted(""))
    case = CheckedCase(compared=CASE.compared, workload=CASE.workload)
    case.race = TreeRace(builds={HEAD: CASE.build_request(HEAD)}, rounds=1)
    measuring = CheckSession(PLAN, [case], Runner(server=server, machine=None), {HEAD: made.folder})
    with server.with_layout(1) as other_layout:
        measuring.confirming = lambda: other_layout
        measuring.visit([case], 0)
        measuring.visit([case], 1)
    first, second = (line.split() for line in told.read_text().splitlines())
    assert (first[0], second[0]) == ("0", "1")
    assert len(first[1]) != len(second[1])


class Quick(TreeRace):
    """Gives up early."""

    timeout_s = 3.0


@pytest.mark.long
def test_no_wait_is_longer_than_the_remaining_budget(server, tmp_path):
    made = Repository(tmp_path / "repo")
    made.write("hangs.py", "import time; time.sleep(600)\n" + planted(""))
    over = pytest.raises(OverBudget, match=r"waiting for hangs\.py:CARD")
    with server.worker(made.folder) as worker, server.until(time.monotonic()), over:
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
