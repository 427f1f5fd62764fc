"""What a dry run foresees, against what the loop then does where all takes what was predicted."""

from dataclasses import replace

import pytest

from attnbench.analysis.costs import MEMORY_ITERATIONS, OVERHEAD_S, CostKind
from attnbench.running.foresee import LOADING_S, PEAKS_S, foresee
from attnbench.running.visit_costs import MOST_WARM_UPS
from tests.doubles.machine import Machine, Worker
from tests.running.sessions import GIB, sweep
from tests.running.worlds import drawn

BESIDES = {"build": CostKind.TIMING, "measure_memory": CostKind.WEIGHING}


class Thorough(Machine):
    """A machine whose processes also warm up and rehearse as long as real ones do."""

    def besides_s(self, case, do):
        return OVERHEAD_S[BESIDES[do]] if do in BESIDES else 0.0

    def worker(self, pid):
        return Warming(self, pid)


class Warming(Worker):
    def usual(self, question, do):
        answer = super().usual(question, do)
        each_s = self.machine.seconds(self.case)
        if do == "build":
            further = min(max(0.0, question.warmup_s / each_s - 1), MOST_WARM_UPS)
            self.warmed_s = (1 + further) * each_s
            self.left_s += further * each_s
        elif do == "lap" and question.rehearse:
            self.left_s += each_s
        elif do == "measure_memory":
            self.left_s += (MEMORY_ITERATIONS - 1) * each_s
        elif do == "finish":
            answer["values"]["warmup_s"] = self.warmed_s
        return answer


def declared(world, planned):
    """A case of the world as if its mechanism declared what it costs."""
    workload = planned.case.workload
    nature = world.nature(f"{planned.case.mechanism}:eager")
    return replace(
        planned,
        declared=True,
        projection_flops=max(planned.projection_flops, 10**6),
        predicted_bytes=nature.peak_bytes(workload.mode, workload.seq_len),
    )


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=pytest.mark.long if seed in (2, 3, 7) else ()) for seed in range(8)],
)
@pytest.mark.parametrize(
    ("room", "cores"), [pytest.param(None, 1, marks=pytest.mark.long), (1.3, 1), (None, 2)]
)
def test_the_time_that_is_foretold_is_what_a_sweep_takes(seed, room, cores):
    """Also where a block takes several races: its link runs again in each of them."""
    world = drawn(seed)
    plan = tuple(declared(world, planned) for planned in world.plan)
    request = replace(world.request, budget_s=None, rounds=3)
    sizes = {planned.case.key: planned.predicted_bytes for planned in plan}
    memory_bytes = room * max(sizes.values()) if room else 1 << 40
    foretold = foresee(request, plan, memory_bytes, cores)
    machine = Thorough(
        lambda case: foretold.seconds[case.key], peak_bytes=lambda case: sizes[case.key]
    )
    spare = {"spare": range(1, cores)}
    agenda = sweep(machine, plan, request, memory_bytes, rates=None, watch=spare)
    assert foretold.rounds == {key: len(runs) for key, runs in agenda.runs.items() if runs}
    took_s = machine.now - 50.0 + LOADING_S + PEAKS_S
    assert 0.95 <= foretold.total_s / took_s <= 1.01, "a process starts in 20 ms"


def test_a_dry_run_needs_no_memory_of_its_own():
    world = drawn(0)
    plan = tuple(declared(world, planned) for planned in world.plan)
    assert (
        foresee(world.request, plan, None).rounds == foresee(world.request, plan, GIB << 9).rounds
    )
