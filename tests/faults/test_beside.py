"""Memory measured beside races by real processes: what is found there is what is found alone."""

import os
from dataclasses import replace

import pytest

from attnbench.devices import SYSTEM
from attnbench.records import Level, Mode, Outcome, Part, Settings
from attnbench.running.agenda import Agenda
from attnbench.running.plan import plan
from attnbench.running.process import Process
from attnbench.running.session import measuring_server, starter
from attnbench.running.sweep import make_visits
from tests.running.sessions import GIB, REQUEST

SETTINGS = Settings(sample_s=0.3, warmup_s=0.1)
SMALL = replace(
    REQUEST,
    models=("fastformer", "linformer", "transformer:eager"),
    lengths=(32, 64),
    tokens=64,
    level=Level.MODEL,
    modes=(Mode.INFERENCE, Mode.TRAINING),
    heads=2,
    rounds=1,
    settings=SETTINGS,
)


def runs(pool, request, cases, spare):
    """What a sweep stores, in order."""
    stored = []
    agenda = Agenda(request=request, plan=cases, memory_bytes=GIB)
    start = starter(pool, request, None)
    make_visits(agenda, start, lambda *more: stored.extend(more), spare=spare)
    assert {run.outcome for run in stored} == {Outcome.OK}
    return stored


def peaks(stored):
    """The allocated peak and the bytes saved for a backward pass of each case."""
    return {
        run.case: (run.values["allocated_peak_bytes"], run.values.get("saved_bytes"))
        for run in stored
        if run.part is Part.MEMORY
    }


@pytest.mark.long
def test_peaks_beside_races_are_those_measured_alone_and_no_process_moves_beside_a_lap(monkeypatch):
    cores = os.sched_getaffinity(0)
    moving = []
    weighers = []
    ask = Process.ask
    bind = Process.bind

    def bound(process, on):
        weighers.append(process)
        bind(process, on)

    def asked(process, question, limit_s):
        if type(question).__name__ == "Lap":
            living = [each.pid for each in weighers if each.alive]
            moving.extend(not SYSTEM.is_at_rest(pid) for pid in living)
        return ask(process, question, limit_s)

    monkeypatch.setattr(Process, "bind", bound)
    monkeypatch.setattr(Process, "ask", asked)
    with measuring_server(threads=1) as pool:
        cases = plan(SMALL, pool).cases
        alone = runs(pool, SMALL, cases, ())
        assert not weighers
        beside = runs(pool, SMALL, cases, {max(cores)})
    assert weighers, "some are measured before the last race ends"
    assert not any(moving)
    assert peaks(alone).keys() == {planned.case.key for planned in cases}
    assert peaks(beside) == peaks(alone)
