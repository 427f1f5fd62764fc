"""The loop against recorded replies and a clock that moves only when a worker runs."""

from dataclasses import replace

import pytest

from attnbench import units
from attnbench.analysis.foresight import refined
from attnbench.records import (
    Case,
    Level,
    Mode,
    Outcome,
    Part,
    Planned,
    Request,
    Settings,
    Workload,
)
from attnbench.run.launch import Reply
from attnbench.run.session import Session, ending

GIB = 1 << 30
REQUEST = Request(
    models=("slow", "fast"),
    lengths=(128, 256, 512),
    tokens=512,
    preset="mind-classification",
    level=Level.ATTENTION,
    modes=(Mode.INFERENCE,),
    dtype="float32",
    device="cpu",
    width=16,
    heads=4,
    layers=1,
    padding=0.0,
    causal=False,
    rounds=3,
    budget_s=None,
    case_timeout_s=1000.0,
    settings=Settings(sample_s=1.0, warmup_s=0.0),
)


def planned(mechanism, seq_len, flops, refusal="", size=1000):
    workload = Workload(batch=512 // seq_len, seq_len=seq_len, level=Level.ATTENTION)
    return Planned(
        case=Case(mechanism=mechanism, form="eager", workload=workload),
        parameters=1,
        projection_flops=flops,
        core_flops=0,
        shell_flops=0,
        predicted_bytes=size,
        predicted_s=flops / 1e9,
        refusal=refusal,
    )


PLAN = tuple(
    planned(name, n, flops)
    for name, flops in (("slow", 10**9), ("fast", 10**8))
    for n in (128, 256, 512)
)


class Machine:
    """Runs nothing: an iteration takes `seconds(case)`, and the clock moves by what it costs."""

    def __init__(self, seconds=lambda case: 0.1, fate=lambda case, part: None):
        self.now, self.calls, self.stored = 50.0, [], []
        self.seconds, self.fate = seconds, fate

    def clock(self):
        return self.now

    def append(self, *records):
        self.stored += records

    def launch(self, request, timeout_s):
        case = Case.from_json(request["case"])
        part = Part(request["part"])
        self.calls.append((case, part, timeout_s))
        if fate := self.fate(case, part):
            self.now += fate.elapsed_s
            return fate
        each = self.seconds(case)
        elapsed = 0.4 + each + (max(1.0, each) if part is Part.TIME else 0)
        if timeout_s is not None and elapsed > timeout_s:
            self.now += timeout_s
            return Reply(None, -9, True, timeout_s, "")
        self.now += elapsed
        answer = {"outcome": "ok"}
        if part is Part.TIME:
            answer["samples"] = [[1, each, each, None, each, 0.0, 0.0]]
        if part is Part.MEMORY:
            answer["values"] = {"allocated_peak_bytes": 4000}
        return Reply(answer, 0, False, elapsed, "")

    def sweep(self, plan=PLAN, request=REQUEST, memory=GIB, **more):
        session = Session(
            request=request,
            plan=plan,
            store=self,
            launch=self.launch,
            memory_bytes=memory,
            clock=self.clock,
            **more,
        )
        session.run()
        return session

    def outcomes(self):
        return {(run.case, run.part, run.round): run for run in self.stored}


def test_every_case_is_visited_in_every_round_and_weighed_once():
    machine = Machine()
    machine.sweep()
    assert set(machine.outcomes()) == {
        (line.case.key, part, round_)
        for line in PLAN
        for part, rounds in ((Part.TIME, 3), (Part.MEMORY, 1))
        for round_ in range(rounds)
    }
    assert len(machine.stored) == len(PLAN) * 4


def test_the_first_round_goes_from_cheap_to_dear_and_the_others_are_shuffled():
    machine = Machine(seconds=lambda case: 2.0 if case.mechanism == "slow" else 0.2)
    machine.sweep()
    rounds = [[], [], []]
    for run in machine.stored:
        if run.part is Part.TIME:
            rounds[run.round].append(run.case)
    first = [Case.from_json(__import__("json").loads(key)).mechanism for key in rounds[0]]
    assert first == ["fast"] * 3 + ["slow"] * 3
    assert sorted(rounds[1]) == sorted(rounds[2]) == sorted(rounds[0])
    assert rounds[1] != rounds[0] != rounds[2] != rounds[1]


def test_a_refused_case_is_written_with_its_reason_and_not_run():
    machine = Machine()
    refused = planned("odd", 128, 1, refusal="it has no causal form")
    machine.sweep((*PLAN, refused))
    run = machine.outcomes()[(refused.case.key, Part.TIME, 0)]
    assert (run.outcome, run.reason) == (Outcome.UNSUPPORTED, "it has no causal form")
    assert refused.case not in [case for case, _, _ in machine.calls]


def test_a_budget_takes_whole_cases_and_is_kept():
    machine = Machine(seconds=lambda case: 3.0 if case.mechanism == "slow" else 0.1)
    session = machine.sweep(request=replace(REQUEST, budget_s=40.0))
    assert machine.now - 50.0 <= 40.0
    assert session.over_budget
    outcomes = machine.outcomes()
    for line in PLAN:
        run = outcomes[(line.case.key, Part.TIME, 0)]
        if run.outcome is Outcome.OK:
            assert (line.case.key, Part.TIME, 2) in outcomes, "all its rounds"
        else:
            assert run.outcome is Outcome.SKIPPED
            assert "would exceed --budget" in run.reason
    assert {line.case.key for line in PLAN} == {key for key, _, _ in outcomes}


def test_predictions_learn_from_what_was_measured():
    """By the first guess all fit; the first takes 20 s in place of 1, so the second would not."""
    plan = tuple(planned("slow", n, n * 10**9 // 128) for n in (128, 256, 512))
    machine = Machine(seconds=lambda case: 20.0 * case.workload.seq_len / 128)
    machine.sweep(plan, replace(REQUEST, case_timeout_s=60.0))
    outcomes = machine.outcomes()
    first, second, third = (outcomes[(line.case.key, Part.TIME, 0)] for line in plan)
    assert first.outcome is Outcome.OK
    assert second.outcome is Outcome.SKIPPED
    assert second.reason == (
        "would exceed --case-timeout (60.0 s): predicted 40.0 s per iteration, 80.4 s per run"
    )
    assert third.outcome is Outcome.SKIPPED


def test_after_memory_ran_out_longer_ones_are_not_tried():
    def fate(case, part):
        if case.mechanism == "slow" and case.workload.seq_len == 256:
            return Reply({"outcome": "oom", "reason": "cannot allocate"}, 0, False, 1.0, "")
        return None

    machine = Machine(fate=fate)
    machine.sweep()
    outcomes = machine.outcomes()
    at = {
        n: outcomes[(line.case.key, Part.TIME, 0)]
        for n, line in zip((128, 256, 512), PLAN, strict=False)
    }
    assert at[128].outcome is Outcome.OK
    assert at[256].outcome is Outcome.OOM
    assert at[512].outcome is Outcome.SKIPPED
    assert at[512].reason == "not run: already ran out of memory at N = 256"
    assert (PLAN[1].case.key, Part.MEMORY, 0) not in outcomes


def test_what_would_not_fit_is_predicted_not_tried():
    machine = Machine()
    big = planned("big", 128, 1, size=8 * GIB)
    machine.sweep((big,), memory=2 * GIB)
    (run,) = machine.stored
    assert run.outcome is Outcome.SKIPPED
    assert run.reason == "would exceed the memory limit (2.000 GiB): predicted 8.000 GiB"
    assert not machine.calls


def test_a_resumed_sweep_does_only_what_is_missing():
    machine = Machine()
    machine.sweep()
    earlier = tuple(machine.stored)
    missing = [run for run in earlier if run.round == 2][:2]
    finished = frozenset((r.case, r.part, r.round) for r in earlier if r not in missing)
    again = Machine()
    again.sweep(earlier=earlier, finished=finished)
    assert sorted((r.case, r.round) for r in again.stored) == sorted(
        (r.case, r.round) for r in missing
    )


def test_what_is_done_takes_nothing_from_the_budget_of_a_resumed_sweep():
    machine = Machine(seconds=lambda case: 3.0)
    machine.sweep(PLAN[:3])
    earlier = tuple(machine.stored)
    finished = frozenset((r.case, r.part, r.round) for r in earlier)
    again = Machine(seconds=lambda case: 3.0)
    again.sweep(PLAN[:4], replace(REQUEST, budget_s=40.0), earlier=earlier, finished=finished)
    assert {r.outcome for r in again.stored} == {Outcome.OK}
    assert len(again.stored) == 4


@pytest.mark.parametrize(
    ("reply", "outcome", "words"),
    [
        (Reply(None, -9, True, 5.0, ""), Outcome.TIMEOUT, "no answer after 5 s"),
        (Reply(None, -9, False, 5.0, "", True), Outcome.OOM, "kernel killed"),
        (Reply(None, -9, False, 5.0, ""), Outcome.CRASHED, "signal 9"),
        (Reply(None, -11, False, 5.0, "a\nFatal: b"), Outcome.CRASHED, "signal 11: Fatal: b"),
        (Reply(None, 1, False, 5.0, ""), Outcome.CRASHED, "exit 1"),
    ],
)
def test_every_ending_has_an_outcome_and_a_reason(reply, outcome, words):
    found, reason = ending(reply)
    assert found is outcome
    assert words in reason


def seen(**changes):
    """What was left, as it was told, and what then passed until the end."""
    machine, told = Machine(lambda case: {"slow": 1.0, "fast": 0.1}[case.mechanism]), []
    watch = lambda progress: told.append((machine.now, progress.left_s))  # noqa: E731
    machine.sweep(request=replace(REQUEST, **changes), observe=watch)
    return [(left, machine.now - now) for now, left in told]


def test_the_seconds_left_are_those_of_the_whole_plan():
    for left, passed in seen():
        assert 0.8 * passed - 2 < left < 1.3 * passed + 2


def test_the_seconds_left_stay_within_the_budget():
    budgeted = seen(budget_s=20.0)
    assert budgeted[0][0] == pytest.approx(20.0)
    assert all(left <= 20.0 for left, _ in budgeted)


@pytest.mark.parametrize("limits", [{"budget_s": 20.0}, {"case_timeout_s": 4.0}])
def test_the_reason_and_the_report_name_one_prediction(limits):
    machine = Machine(seconds=lambda case: {"slow": 0.03, "fast": 0.001}[case.mechanism]
                      * case.workload.seq_len)  # fmt: skip
    machine.sweep(request=replace(REQUEST, **limits))
    foreseen = refined(PLAN, machine.stored)
    skipped = [run for run in machine.stored if run.outcome is Outcome.SKIPPED]
    assert skipped
    for run in skipped:
        assert f"predicted {units.seconds(foreseen[run.case][0])} per iteration" in run.reason
