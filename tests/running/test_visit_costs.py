"""What a visit to a case takes: warm-up, laps and the rest."""

from dataclasses import replace

import pytest

from attnbench.analysis.costs import CostKind, Costs
from attnbench.records import Clock, Part, Settings
from attnbench.running.race import turns
from attnbench.running.visit_costs import MOST_WARM_UPS, VisitCosts
from tests.doubles.machine import Machine
from tests.running.sessions import (
    BY_CORE,
    PLAN,
    RATES,
    REQUEST,
    outcomes,
    sweep,
    timed,
)


def test_predictions_learn_from_the_clock_of_the_device_and_visits_from_that_of_the_wall():
    machine = Machine(lambda case: 0.1, hold_s=0.5)
    agenda = sweep(machine)
    for line in PLAN:
        assert agenda.costs.iteration_s(line) == pytest.approx(0.1)
    assert agenda.costs.wall_s(PLAN[0]) == pytest.approx(0.6)
    visit_s = agenda.visit_s(PLAN[0]) - agenda.costs.predicted(CostKind.TIMING, PLAN[0])
    assert visit_s == pytest.approx(0.6 * (1 + turns(0.6, REQUEST.settings).total))


def test_a_visit_is_expected_to_take_what_one_took():
    """Pages that the first iteration touches cost more than it does, and only in long cases."""
    machine = Machine(compile_s=lambda case: 30.0 if case.workload.seq_len == 512 else 0.0)
    agenda = sweep(machine)
    slow = [planned.case.workload.seq_len for planned in PLAN if agenda.visit_s(planned) > 30]
    assert slow == [512, 512]


def test_a_shared_core_gives_as_many_laps_and_is_predicted_to_take_longer():
    alone, shared = Machine(), Machine(shared=4)
    sweep(alone, request=BY_CORE)
    agenda = sweep(shared, request=BY_CORE)
    one, other = outcomes(alone), outcomes(shared)
    timed = [key for key in one if key[1] is Part.TIME]
    assert [len(one[key].samples) for key in timed] == [len(other[key].samples) for key in timed]
    line = PLAN[0]
    assert agenda.costs.wall_s(line) == pytest.approx(4 * 0.1)
    visit_s = agenda.visit_s(line) - agenda.costs.predicted(CostKind.TIMING, PLAN[0])
    laps_s = sum(sample.wall_s for sample in other[line.case.key, Part.TIME, 0].samples)
    assert visit_s == pytest.approx(laps_s + 4 * 0.1), "the laps and the first iteration"


@pytest.fixture
def costs():
    """Those of a plan of which one case takes a second, and nothing else is known to take time."""
    return Costs(PLAN, RATES)


def test_a_visit_warms_up_runs_its_laps_and_measures_energy_where_that_is_asked(costs):
    settings = Settings(sample_s=1.0, warmup_s=0.0)
    besides_s = costs.predicted(CostKind.TIMING, PLAN[0])
    visits = VisitCosts(costs)
    laps = turns(0.1, settings).total
    own = (PLAN[0], settings, 0.1, 0.1, False)
    assert visits.seconds_by(*own) == pytest.approx(besides_s + 0.1 * (1 + laps))
    energy = replace(settings, energy=True)
    assert visits.seconds_by(PLAN[0], energy, 0.1, 0.1, False) == pytest.approx(
        visits.seconds_by(*own) + 4.0
    )
    warm = replace(settings, warmup_s=0.3)
    longer = visits.seconds_by(PLAN[0], warm, 0.1, 0.1, False) - visits.seconds_by(*own)
    assert longer == pytest.approx(0.2), "three iterations in place of one"
    warmest = replace(settings, warmup_s=99.0)
    longer = visits.seconds_by(PLAN[0], warmest, 0.1, 0.1, False) - visits.seconds_by(*own)
    assert longer == pytest.approx(0.1 * MOST_WARM_UPS)


def test_an_iteration_that_waits_occupies_its_process_for_longer_than_it_counts(costs):
    settings = Settings(sample_s=1.0, warmup_s=0.0, clock=Clock.CPU)
    visits = VisitCosts(costs)
    alone = visits.seconds_by(PLAN[0], settings, 0.1, 0.1, False)
    shared = visits.seconds_by(PLAN[0], settings, 0.4, 0.1, False)
    besides_s = costs.predicted(CostKind.TIMING, PLAN[0])
    assert shared - besides_s == pytest.approx(4 * (alone - besides_s)), "as many laps"


def test_what_was_foretold_of_a_visit_is_forgotten_once_something_is_learnt(costs):
    visits, settings = VisitCosts(costs), Settings(sample_s=1.0, warmup_s=0.0)
    before = [visits.seconds(line, settings) for line in PLAN]
    assert [visits.seconds(line, settings) for line in PLAN] == before
    visits.learn(PLAN[0], timed(PLAN[0], 4, {}, elapsed_s=0.5))
    assert visits.seconds(PLAN[0], settings) < before[0], "an iteration takes 0.1 s, and not 1 s"
    assert visits.laps_s(PLAN[0], settings) == pytest.approx(0.1 * turns(0.1, settings).total)
