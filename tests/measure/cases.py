"""Small cases for the tests of the measuring room."""

import json
from dataclasses import asdict
from types import SimpleNamespace

from attnbench.measure.worker import Worker
from attnbench.records import Case, Level, Mode, Shell, Workload


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


def timing(iterate, watch, meter, iteration_s):
    """A worker that has built a case of such iterations."""
    worker = Worker(None, seed=0)
    worker.built = SimpleNamespace(
        iteration_s=iteration_s,
        iterate=iterate,
        clear=lambda: None,
        prepare=lambda count: None,
        watch=watch,
        meter=meter,
        witness=None,
        laps=[],
    )
    return worker
