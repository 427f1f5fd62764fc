"""A machine on which everything takes what it took in a stored sweep, or is predicted to take."""

from dataclasses import replace

from attnbench.analysis.costs import CostKind, Costs, peak_rates
from attnbench.records.storage import journal
from tests.doubles.machine import Machine
from tests.running.sessions import GIB, sweep

OWN = "mine.py:Mean"  # a module without a card, as a plan names it


class Stored(Machine):
    """Cases take what they took in `stored`, a sweep with its plan and runs, or `slower` times it.

    Building and warming up, and the measuring of memory, take what they took besides iterations. A
    case that the sweep left out takes what the other cases of its series predict. The module `OWN`
    takes `share` of what fastformer does.
    """

    def __init__(self, stored, slower=1.0, share=1.0):
        super().__init__(overhead_s=0.0)
        self.costs = Costs(stored.plan, peak_rates(stored.sessions[0]))
        self.planned = {planned.case.key: planned for planned in stored.plan}
        self.slower, self.share = slower, share
        self.seconds = self.iteration_s
        self.peak_bytes = lambda case: int(
            self.costs.predicted(CostKind.BYTES, self.stand_in(case))
        )
        for run in stored.runs:
            if run.case in self.planned:
                self.costs.learn(self.planned[run.case], run)

    def stand_in(self, case):
        """The stored case whose costs are those of this one."""
        if case.mechanism != OWN:
            return self.planned[case.key]
        (planned,) = (
            planned
            for planned in self.planned.values()
            if (planned.case.mechanism, planned.case.workload) == ("fastformer", case.workload)
        )
        return planned

    def iteration_s(self, case):
        """Seconds that an iteration takes of its process."""
        share = self.share if case.mechanism == OWN else 1.0
        return share * self.slower * self.costs.wall_s(self.stand_in(case))

    def besides_s(self, case, do):
        """Seconds of building a case or of measuring its memory, but for its iterations."""
        what = {"build": CostKind.TIMING, "measure_memory": CostKind.WEIGHING}.get(do)
        return self.slower * self.costs.predicted(what, self.stand_in(case)) if what else 0.0


def plan_of(stored, mechanisms=None):
    """The cases of some mechanisms of a stored sweep; `OWN` may be one of them."""
    plan = [p for p in stored.plan if mechanisms is None or named(p) in mechanisms]
    if OWN in (mechanisms or ()):
        plan += [own(p) for p in stored.plan if p.case.mechanism == "fastformer"]
    return plan


def own(planned):
    """The case of a module without a card at the workload of this one."""
    case = replace(planned.case, mechanism=OWN, form="eager")
    maps = (
        8 * case.workload.tokens * case.workload.width**2
    )  # as `mechanisms.catalogue.adopted` assumes
    return replace(
        planned, case=case, declared=False, projection_flops=maps, core_flops=0, own=False
    )


def again(folder, mechanisms=None, *, budget_s, slower=1.0, share=1.0):
    """The sweep of a stored folder once more, with some mechanisms, within a budget: its agenda."""
    stored = journal.load(folder)
    request = replace(stored.request, budget_s=budget_s)
    machine = Stored(stored, slower, share)
    rates = tuple(rate / slower for rate in peak_rates(stored.sessions[0]))
    return sweep(machine, plan_of(stored, mechanisms), request, 24 * GIB, rates=rates)


def named(planned):
    """`transformer:eager`, or the name of a mechanism whose default form was measured."""
    case = planned.case
    return f"{case.mechanism}:{case.form}" if case.mechanism == "transformer" else case.mechanism


def reached(agenda):
    """The lengths at which each series was timed, by mode and series."""
    lengths = {mode: {} for mode in agenda.request.modes}
    for planned in agenda.plan:
        workload = planned.case.workload
        own = lengths[workload.mode].setdefault(str(agenda.series(planned)), set())
        if agenda.timed_runs(planned):
            own.add(workload.seq_len)
    return lengths


def common_front(lengths):
    """The longest length that every series of a mode reached; 0 where there is none."""
    return max(set.intersection(*lengths.values()), default=0) if lengths else 0
