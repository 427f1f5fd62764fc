"""Shards of a small plan, measured by a machine that runs nothing, in real journals."""

from dataclasses import replace

from attnbench.records import Shard
from attnbench.records.storage.journal import Journal
from attnbench.records.storage.resuming import completed_runs
from attnbench.records.storage.schema import EndReason, Start
from attnbench.running.agenda import Agenda
from attnbench.running.shards import cases_of_shard
from attnbench.running.sweep import make_visits
from tests import sweeps
from tests.doubles.machine import Machine
from tests.running.sessions import PLAN, REQUEST

FACTS = (sweeps.facts("slow"), sweeps.facts("fast"))
SLOW = {"slow": 0.4, "fast": 0.1}


def measured(folder, shard=None, request=REQUEST, plan=PLAN, seconds=None, cards=FACTS, **machine):
    """The folder, after a sweep on one machine has ended in it."""
    here = sweeps.environment(**{"host": f"node-{shard}", **machine})
    own = cases_of_shard(plan, request, shard)
    fake = Machine(seconds or (lambda case: SLOW[case.mechanism]))
    with Journal(folder, Start(request, here, shard)) as journal:
        if not journal.sweep.plan:
            journal.append(*cards, *plan)
        agenda = Agenda(
            request=request,
            plan=own,
            memory_bytes=1 << 30,
            clock=fake.clock,
            earlier=completed_runs(journal.sweep),
        )
        make_visits(agenda, fake.start, journal.append)
        journal.end(EndReason.FINISHED)
    return folder


def divided(tmp_path, shards=3, **how):
    """The folders of all shards."""
    return [
        measured(tmp_path / f"shard-{number}", Shard(number, shards), **how)
        for number in range(1, shards + 1)
    ]


def contents(sweep):
    """What a sweep holds, but for its order, its times, and where it was measured."""
    runs = {
        (run.case, run.part, run.round): (run.outcome, run.cause, len(run.samples), run.values)
        for run in sweep.runs
    }
    assert len(runs) == len(sweep.runs)
    return sweep.cards, sweep.plan, replace(sweep.request, rounds=0), runs
