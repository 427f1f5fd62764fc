"""A check requests what a baseline stores; stored times are a hint and never fail."""

from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean

import pytest
from hypothesis import given
from msgspec import convert

from attnbench.gate.check import stored_cases, stored_time_finding
from attnbench.records import Case, Level, Selection, Workload
from attnbench.store.baseline import Baseline, StoredCase
from tests.cases import CASES
from tests.sweeps import environment

WORKLOAD = Workload(batch=8, seq_len=128, level=Level.ATTENTION)


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        ((1.0, 1.01, 0.99), (1.05, 1.06, 1.04), "same"),
        ((1.0, 1.01, 0.99), (1.5, 1.51, 1.49), "unsure"),
        ((1.0, 1.01, 0.99), (0.5, 0.51, 0.49), "unsure"),
        ((1.0, 2.0, 0.5), (1.0, 2.0, 0.5), "unsure"),
        ((1.0,), (1.0, 1.001), "same"),
        ((1.0,), (9.0, 9.0, 9.0), "unsure"),
        ((1.0,), (1.0,), "unsure"),
    ],
)
def test_a_stored_time_never_fails(before, now, verdict):
    found = stored_time_finding("m", "c", before, now)
    assert (found.verdict, found.fails) == (verdict, False)
    assert found.base == pytest.approx(geometric_mean(before))
    assert found.head == pytest.approx(geometric_mean(now))
    assert found.ratio == pytest.approx(geometric_mean(now) / geometric_mean(before))


@given(CASES)
def test_a_stored_case_is_requested_as_it_was_saved(case):
    if ".py:" in case.mechanism:  # a file must be there
        case = replace(case, mechanism="small.py:CARD")
    machine = environment().fingerprint
    kept = Baseline(attnbench="0.1", machine=machine, cases={str(case): StoredCase()})
    (found,) = stored_cases(kept, None, Path.cwd())
    assert (found.label, found.workload) == (str(case), case.workload)
    asked = found.build_request("head")
    assert Case(**asked | {"workload": convert(asked["workload"], Workload)}) == case


def test_only_selected_cases_are_taken_from_a_file():
    cases = [
        Case(mechanism=name, form=form, options=options, workload=WORKLOAD)
        for name, form, options in (
            ("local", "eager", ()),
            ("etc", "eager", ()),
            ("local", "flex", (("block", 20),)),
        )
    ]
    machine = environment().fingerprint
    kept = Baseline(attnbench="0.1", machine=machine, cases={str(c): StoredCase() for c in cases})
    for models, taken in (
        (["etc"], [1]),
        (["local"], [0, 2]),
        (["local:*"], [0, 2]),
        (["local:eager", "etc"], [0, 1]),
        (["local[block=20]"], [2]),
        (["local[block=30]"], []),
    ):
        found = stored_cases(kept, [Selection.read(text) for text in models], Path.cwd())
        assert [one.label for one in found] == [str(cases[number]) for number in taken]
