"""Sweeps of two mechanisms at one length."""

from dataclasses import replace

from attnbench.records import Mode
from tests.sweeps import sweep

PAIR = ("transformer", "fastformer")


def at(level, **changes):
    whole = sweep(PAIR, lengths=(1024,), modes=(Mode.INFERENCE,), **changes)
    counts = {"transformer": 31.0, "fastformer": 591.0}
    named = {one.case.key: one.case.mechanism for one in whole.plan}
    runs = tuple(
        replace(run, values=run.values | {"operators": counts[named[run.case]]})
        for run in whole.runs
    )
    return replace(whole, runs=runs, request=replace(whole.request, level=level))


def pair(series, **changes):
    return sweep(series, lengths=(1024,), modes=(Mode.INFERENCE,), **changes)
