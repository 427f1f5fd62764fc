"""A machine on which everything takes what it took in a stored sweep, or is predicted to take."""

from dataclasses import replace

from attnbench.analysis.costs import Cost, Costs, peak_rates
from attnbench.store import journal
from tests.run.machine import Machine
from tests.run.sessions import GIB, sweep


class Stored(Machine):
    """Cases take what they took in `stored`, a sweep with its plan and runs.

    Building and warming up, and the measuring of memory, take what they took besides iterations. A
    case that the sweep left out takes what the other cases of its series predict.
    """

    def __init__(self, stored):
        super().__init__(overhead_s=0.0)
        self.costs = Costs(stored.plan, peak_rates(stored.sessions[0]))
        self.planned = {planned.case.key: planned for planned in stored.plan}
        self.seconds = lambda case: self.costs.wall_s(self.planned[case.key])
        self.peak_bytes = lambda case: int(self.costs.predicted(Cost.BYTES, self.planned[case.key]))
        for run in stored.runs:
            if run.case in self.planned:
                self.costs.learn(self.planned[run.case], run)

    def besides_s(self, case, do):
        """Seconds of building a case or of measuring its memory, but for its iterations."""
        what = {"build": Cost.TIMING, "measure_memory": Cost.WEIGHING}.get(do)
        return self.costs.predicted(what, self.planned[case.key]) if what else 0.0


def again(folder, mechanisms=None, *, budget_s):
    """The sweep of a stored folder once more, with some mechanisms, within a budget: its agenda."""
    stored = journal.load(folder)
    plan = [p for p in stored.plan if mechanisms is None or named(p) in mechanisms]
    request = replace(stored.request, budget_s=budget_s)
    return sweep(Stored(stored), plan, request, 24 * GIB, rates=peak_rates(stored.sessions[0]))


def named(planned):
    """`transformer:eager`, or the name of a mechanism whose default form was measured."""
    case = planned.case
    return f"{case.mechanism}:{case.form}" if case.mechanism == "transformer" else case.mechanism


def reached(agenda):
    """The lengths at which each series was timed, by mode and series."""
    lengths = {mode: {} for mode in agenda.request.modes}
    for planned in agenda.plan:
        workload = planned.case.workload
        own = lengths[workload.mode].setdefault(agenda.series(planned), set())
        if agenda.timed(planned):
            own.add(workload.seq_len)
    return lengths


def common_front(lengths):
    """The longest length that every series of a mode reached; 0 where there is none."""
    return max(set.intersection(*lengths.values()), default=0) if lengths else 0
