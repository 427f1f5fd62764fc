"""What cases take: a guess at first, then what was measured, and what that says of others."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.analysis.costs import (
    ASSUMED,
    COMPILE_S,
    FILLING,
    MARGIN,
    SLOPE_LENGTHS,
    CostKind,
    Costs,
    by_slope,
    peak_rates,
)
from attnbench.records import Clock, Mode, Outcome, Part, Run, Sample
from tests import sweeps

LENGTHS = (128, 256, 512, 1024, 2048)
WHOLE = sweeps.sweep(("fastformer", "transformer"), lengths=LENGTHS, modes=(Mode.INFERENCE,))


def case(mechanism="fastformer", seq_len=512, plan=WHOLE.plan, **changes):
    """A line of the plan, changed."""
    found = next(
        line
        for line in plan
        if (line.case.mechanism, line.case.workload.seq_len) == (mechanism, seq_len)
    )
    return replace(found, **changes)


def timed(planned, seconds, *, wall=1.0, elapsed_s=None, iterations=2, **values):
    """A run whose laps take so long, and `wall` times as long by the clock on the wall."""
    total = iterations * seconds
    sample = Sample(iterations, wall * total, total, None, total, 0.0, 0.0, clock=Clock.CPU)
    return Run(
        case=planned.case.key,
        part=Part.TIME,
        round=0,
        outcome=Outcome.OK,
        samples=(sample,) * 3,
        values=values,
        elapsed_s=3 * wall * total if elapsed_s is None else elapsed_s,
    )


def weighed(planned, peak, elapsed_s=1.0):
    return Run(
        case=planned.case.key,
        part=Part.MEMORY,
        round=0,
        outcome=Outcome.OK,
        values={"allocated_peak_bytes": float(peak)},
        elapsed_s=elapsed_s,
    )


def test_what_was_measured_is_what_is_predicted():
    costs = Costs(WHOLE.plan)
    costs.learn(case(), timed(case(), 0.25, wall=1.5))
    assert costs.iteration_s(case()) == pytest.approx(0.25)
    assert costs.wall_s(case()) == pytest.approx(0.25 * 1.5)


@given(st.floats(0.01, 100), st.sampled_from(LENGTHS))
def test_a_series_errs_at_other_lengths_as_it_did_where_it_was_measured(factor, seq_len):
    costs = Costs(WHOLE.plan)
    guessed = costs.guess(CostKind.SECONDS, case())
    costs.learn(case(), timed(case(), factor * guessed))
    other = case(seq_len=seq_len)
    expected = factor * costs.guess(CostKind.SECONDS, other)
    assert costs.iteration_s(other) == pytest.approx(expected)
    mechanism = case("transformer", seq_len)
    expected = factor * costs.guess(CostKind.SECONDS, mechanism)
    assert costs.iteration_s(mechanism) == pytest.approx(expected), "as no other knows better"


def test_the_nearest_length_says_most():
    costs = Costs(WHOLE.plan)
    for seq_len, factor in ((128, 2.0), (2048, 8.0)):
        planned = case(seq_len=seq_len)
        costs.learn(planned, timed(planned, factor * costs.guess(CostKind.SECONDS, planned)))
    for seq_len, factor in ((256, 2.0), (1024, 8.0)):
        planned = case(seq_len=seq_len)
        guessed = costs.guess(CostKind.SECONDS, planned)
        assert costs.iteration_s(planned) == pytest.approx(factor * guessed)


def test_bytes_are_predicted_by_the_same_form_alone_and_some_are_kept_free():
    costs = Costs(WHOLE.plan, context_bytes=1000.0)
    planned, other = case(), case("transformer")
    costs.learn(planned, weighed(planned, 3 * planned.predicted_bytes))
    assert costs.predicted(CostKind.BYTES, case(seq_len=1024)) == pytest.approx(
        3 * case(seq_len=1024).predicted_bytes
    )
    assert costs.predicted(CostKind.BYTES, other) == other.predicted_bytes
    assert costs.needed_bytes(other) == pytest.approx(MARGIN * (1000 + other.predicted_bytes))


@pytest.mark.parametrize(
    "changes",
    [{"outcome": Outcome.CRASHED}, {"samples": ()}],
)
def test_of_a_run_without_laps_no_time_is_learnt(changes):
    costs = Costs(WHOLE.plan)
    before = costs.iteration_s(case())
    costs.learn(case(), replace(timed(case(), 100.0), **changes))
    assert costs.iteration_s(case()) == before


def test_of_all_runs_of_a_case_the_shortest_besides_its_iterations_counts():
    costs = Costs(WHOLE.plan)
    for besides_s in (3.0, 1.0, 2.0):
        run = timed(case(), 1.0, iterations=1)
        costs.learn(case(), replace(run, elapsed_s=run.elapsed_s + besides_s))
    assert costs.predicted(CostKind.TIMING, case()) == pytest.approx(1.0)


def test_one_slow_spell_is_not_what_every_case_of_a_series_costs():
    """On a busy machine one measurement of memory took five times as long as all others."""
    costs = Costs(WHOLE.plan)
    for name in ("transformer", "fastformer"):
        costs.learn(case(name, 128), timed(case(name, 128), 0.01))
    usual_s, slow_s = 2.0, 10.0
    for seq_len in (128, 256, 512):
        costs.learn(case("transformer", seq_len), weighed(case("transformer", seq_len), 1, usual_s))
    for count, seq_len in enumerate((128, 256, 512), start=1):
        costs.learn(case(seq_len=seq_len), weighed(case(seq_len=seq_len), 1, slow_s))
        predicted = costs.predicted(CostKind.WEIGHING, case(seq_len=1024))
        assert (predicted < 2 * usual_s) == (count < SLOPE_LENGTHS), "three are no accident"
    compiled = case(seq_len=1024, compiles=True)
    assert costs.predicted(CostKind.WEIGHING, compiled) > COMPILE_S


def test_steps_are_not_predicted_from_passes():
    whole = sweeps.sweep(("fastformer",), lengths=LENGTHS, modes=(Mode.INFERENCE, Mode.DECODE))
    costs = Costs(whole.plan)
    passes, steps = (
        next(line for line in whole.plan if line.case.workload.mode is mode)
        for mode in (Mode.INFERENCE, Mode.DECODE)
    )
    costs.learn(passes, timed(passes, 1e6))
    assert costs.iteration_s(steps) == costs.guess(CostKind.SECONDS, steps)


@given(st.floats(0.5, 3), st.floats(1e-6, 1))
def test_an_undeclared_cost_is_a_power_of_the_length(exponent, constant):
    """Of a sequence, from the last of the measured lengths."""
    known = []
    for seq_len in LENGTHS[:4]:
        planned = case(seq_len=seq_len)
        known.append((planned, planned.case.workload.batch * constant * seq_len**exponent))
    longer = case(seq_len=2048)
    expected = longer.case.workload.batch * constant * 2048**exponent
    assert by_slope(longer, known) == pytest.approx(expected, rel=1e-6)
    known[0] = known[0][0], 1e9
    assert by_slope(longer, known) == pytest.approx(expected, rel=1e-6)


def test_an_undeclared_module_is_unknown_until_enough_lengths_were_measured():
    plan = tuple(replace(line, declared=False) for line in WHOLE.plan)
    costs = Costs(plan)
    longest = case(seq_len=2048, plan=plan)
    for number, seq_len in enumerate(LENGTHS[:SLOPE_LENGTHS]):
        assert costs.is_unknown(longest, CostKind.SECONDS)
        planned = case(seq_len=seq_len, plan=plan)
        costs.learn(planned, timed(planned, planned.case.workload.batch * 4.0**number))
    assert not costs.is_unknown(longest, CostKind.SECONDS)
    assert not costs.is_unknown(case(), CostKind.SECONDS), "what is declared is never unknown"
    batch = longest.case.workload.batch
    assert costs.iteration_s(longest) == pytest.approx(batch * 4.0**4)


def test_what_precedes_an_iteration_is_compiling_a_prompt_or_filling():
    costs = Costs(WHOLE.plan)
    assert costs.prepare_s(case()) == 0.0
    compiled = case(compiles=True)
    assert costs.prepare_s(compiled) == COMPILE_S + costs.iteration_s(compiled)
    filled = case(filled=True, moved_bytes=10**9)
    assert costs.prepare_s(filled) == FILLING * 10**9 / ASSUMED[1]
    assert costs.prepare_s(case(prefill_flops=10**12)) > 10


def test_a_faster_machine_takes_less_by_its_rates():
    planned = case()
    usual, faster = (Costs(WHOLE.plan, rates) for rates in ((1e9, 1e9), (1e12, 1e12)))
    assert usual.first_guess(planned) > 100 * faster.first_guess(planned)


def test_looking_for_odd_behaviour_costs_nothing_before_it_was_done():
    costs = Costs(WHOLE.plan)
    assert costs.examination_s(case()) == 0.0
    for seq_len, seconds in ((512, 0.1), (2048, 0.8)):
        planned = case(seq_len=seq_len)
        examined = {"examination_s": 2.0} if seq_len == 512 else {}
        costs.learn(planned, timed(planned, seconds, elapsed_s=9.0, **examined))
    assert costs.examination_s(case()) == pytest.approx(2.0)
    assert costs.examination_s(case(seq_len=2048)) == pytest.approx(2.0 * 8)
    assert costs.examination_s(case(seq_len=128)) == pytest.approx(2.0)


def test_rates_of_a_machine_are_known_together_or_not():
    here = sweeps.environment()
    assert peak_rates(here) == (here.matmul_flops, here.copy_bytes)
    assert peak_rates(replace(here, copy_bytes=None)) is None
