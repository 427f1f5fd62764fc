"""Small cases for the tests of the measuring room."""

import json
import re
from dataclasses import asdict
from pathlib import Path

from attnbench.measuring.built import BuiltCase
from attnbench.measuring.worker import Worker
from attnbench.records import Case, Level, Mode, Outcome, Shell, Workload
from attnbench.records.messages import Lap, read_answer

EXPLOITS = Path(__file__).with_name("exploits.py")
LAPS, ITERATIONS = 2, 3


def case(mechanism="transformer", form="eager", options=(), **sizes):
    level = sizes.pop("level", Level.ATTENTION)
    given = {"batch": 2, "seq_len": 32, "width": 16, "heads": 4, "mode": Mode.INFERENCE} | sizes
    shell = Shell(vocabulary=50, classes=5) if level is Level.MODEL else None
    workload = Workload(level=level, shell=shell, **given)
    return Case(mechanism=mechanism, form=form, options=options, workload=workload)


def sent(one):
    """The fields of a case as its worker reads them from the connection."""
    return json.loads(json.dumps(asdict(one)))


def answered(worker, do, **asked):
    """What a worker answers where all goes well."""
    answer = worker.answer(do, **asked)
    assert answer["outcome"] == "ok", answer
    return answer


def lapped(worker, **asked):
    """The sample that a worker takes where all goes well."""
    answer = worker.answer("lap", **asked)
    return read_answer(answer, Lap(**asked)).sample


def timing(iterate, watch, meter, iteration_s):
    """A worker that has built a case of such iterations."""
    worker = Worker(None, seed=0)
    iterate.clear, iterate.prepare = lambda: None, lambda count: None
    worker.built = built = BuiltCase.__new__(BuiltCase)
    built.iterate, built.iteration_s, built.examination = iterate, iteration_s, None
    built.watch, built.meter = watch, meter
    return worker


def measured(name, options=(), build=None, **sizes):
    """The answers to build, laps and finish, and the worker's module, in this process."""
    worker = Worker(None, seed=0)
    one = sent(case(f"{EXPLOITS}:{name}", "eager", options, **sizes))
    built = worker.answer("build", suspicious=True, **(build or {}), **one)
    if built["outcome"] != Outcome.OK:
        return built, None
    module = next(m for m in worker.built.subject.module.modules() if hasattr(m, "calls"))
    for _ in range(LAPS):
        module.paused = True
        lap = worker.answer("lap", iterations=ITERATIONS)
        if lap["outcome"] != Outcome.OK:
            return lap, module
        module.timed = module.calls
        if hasattr(module, "go"):
            module.go.set()
            module.thread.join()
            module.go.clear()
    return worker.answer("finish"), module


def noted(name, **sizes):
    """What makes a run that went well suspect, and what is odd about it."""
    found, _ = measured(name, **sizes)
    assert found["outcome"] == Outcome.OK, found
    notes = [found["notes"].get(kind, "") for kind in ("suspect", "odd")]
    return tuple(re.sub("[0-9]+", "#", note) for note in notes)
