"""What a check measures: its plan, its batches, and its cases with their results."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.commands.check.cases import (
    AGAIN,
    BASE,
    HEAD,
    CheckedCase,
    CheckPlan,
    Counted,
    planned_cases,
)
from attnbench.commands.check.rule import Statistic
from attnbench.records import Cause, Level, Mode, Outcome, Selection, Shell, messages

PLAN = CheckPlan(lengths=(128, 512), modes=(Mode.INFERENCE, Mode.TRAINING))
ONE = replace(PLAN, lengths=(128,), modes=(Mode.INFERENCE,))
OK = Counted(outcome="ok", case="m:eager/N128")


def test_what_is_named_twice_is_checked_once():
    """It would be a mean over twice as many lengths, which seems more certain than it is."""
    assert len(planned_cases(ONE, [Selection(name="a"), Selection(name="a")])) == 1


def test_every_mechanism_is_checked_in_every_mode_at_every_length_at_c_tokens():
    cases = planned_cases(PLAN, [Selection(name="a"), Selection(name="b", form="eager")])
    found = [(case.name, case.workload.mode, case.workload.seq_len) for case in cases]
    assert len(found) == len({*found}) == 8
    assert {case.workload.tokens for case in cases} == {PLAN.tokens}
    long = replace(PLAN, lengths=(4096,), level=Level.MODEL)
    (case, _) = planned_cases(long, [Selection(name="a")])
    assert (case.workload.batch, case.workload.shell) == (1, Shell())


@given(st.sampled_from([64, 512, 8192]), st.floats(1e-5, 10), st.integers(1, 64))
def test_the_timed_batch_is_the_least_power_of_two_that_takes_long_enough(seq_len, took_s, batch):
    workload = replace(PLAN.workload(Mode.INFERENCE, seq_len), batch=batch)
    found = PLAN.batch_for(workload, took_s)
    assert found & (found - 1) == 0
    assert found * seq_len <= 1 << 16
    if found > 1:
        assert found / 2 * took_s / batch < PLAN.iteration_s
    if 2 * found * seq_len <= 1 << 16:
        assert found * took_s / batch >= PLAN.iteration_s * 0.999


@pytest.mark.parametrize(
    ("left_s", "rounds"), [(math.inf, 20), (1e6, 20), (60.0, 20), (9.0, 12), (1.0, 4), (0.0, 4)]
)
def test_with_less_time_there_are_fewer_samples_and_as_many_pairs(left_s, rounds):
    plan = PLAN.fitted_to_time(1, left_s)
    assert plan == replace(PLAN, rounds=rounds)
    assert PLAN.fitted_to_time(10, 10 * left_s).rounds == rounds


def test_longer_samples_have_fewer_rounds():
    assert PLAN.rounds_for(1e-4) == PLAN.rounds
    assert PLAN.rounds_for(0.01) == int(20 / (2 * 3 * 26 * 0.01))
    assert PLAN.rounds_for(60.0) == 4


def test_a_process_that_was_killed_is_no_fault_of_its_code():
    oom = Counted.of(messages.Failure(outcome=Outcome.OOM, reason="no memory"))
    killed = Counted.of(messages.Failure(outcome=Outcome.CRASHED, cause=Cause.KILLED, reason="9"))
    broken = Counted.of(messages.Failure(outcome=Outcome.CRASHED, reason="11"))
    for one in (oom, killed):
        blamed = one.excused_if_killed("head")
        assert (blamed.outcome, blamed.cause) == (Outcome.SKIPPED, Cause.KILLED)
        assert blamed.reason == f"could not be measured on head: {one.reason}"
    assert broken.excused_if_killed("head") is broken
    weighed = Counted.of(messages.Weighed(values={"flops": 3.0}, case="m"))
    assert weighed == Counted(outcome="ok", case="m", values={"flops": 3.0})
    assert weighed.ran


def test_a_case_has_the_name_that_head_gives_it():
    (case,) = planned_cases(ONE, [Selection(name="m")])
    assert case.label.startswith("m:default/B8-N128")
    case.counted[BASE] = replace(OK, case="base's")
    assert case.label == "base's"
    case.counted[HEAD] = replace(OK, case="head's")
    assert case.label == "head's"
    assert CheckedCase(selection=Selection(name="shop.code:index")).label == "shop.code:index"


def test_a_case_ran_where_every_side_did_and_the_sides_can_be_compared():
    case = CheckedCase(selection=Selection(name="m"), counted={BASE: OK, HEAD: OK})
    assert case.ran
    case.apart = "both sides ran head's code"
    assert not case.ran
    case.apart, case.counted[HEAD] = "", Counted(outcome="failed")
    assert not case.ran


def test_a_side_takes_what_its_middle_process_takes():
    def visit(*base):
        return {BASE: base, HEAD: (2.0,) * 4, AGAIN: base}

    case = CheckedCase(selection=Selection(name="m"))
    assert case.seconds(BASE, Statistic.TYPICAL) is None
    case.looks[0].extend([visit(*[1.0] * 4), visit(*[5.0] * 4)])
    case.looks[1].append(visit(*[3.0] * 4))
    assert case.seconds(BASE, Statistic.TYPICAL) == 3.0
    assert case.seconds(HEAD, Statistic.AVERAGE) == 2.0
    assert case.pairs[0] == ((1.0,) * 8, (2.0,) * 4)
    typical = next(v for v in case.views(0.02) if v.statistic is Statistic.TYPICAL)
    assert [len(each) for each in (typical.first, typical.second, typical.again)] == [2, 1, 3]
    assert typical.first[0] == pytest.approx(math.log(2))


def test_why_results_were_not_compared_is_said_of_the_first_side_that_failed():
    case = CheckedCase(selection=Selection(name="m"))
    case.outputs[HEAD] = messages.Failure(outcome="failed", reason="it broke")
    assert case.reason_uncompared(BASE, HEAD) == "it broke"
    assert case.reason_uncompared(BASE) == ""
    assert case.comparison(HEAD) is None
