"""A check requests what a baseline stores."""

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from msgspec import convert

from attnbench.gate.baseline import Baseline
from attnbench.gate.check import stored_cases
from attnbench.records import Case, Level, Selection, Workload
from tests.cases import CASES

WORKLOAD = Workload(batch=8, seq_len=128, level=Level.ATTENTION)


@given(CASES)
def test_a_stored_case_is_requested_as_it_was_saved(case):
    if ".py:" in case.mechanism:  # a file must be there
        case = replace(case, mechanism="small.py:CARD")
    kept = Baseline(attnbench="0.1", torch="2", cases={str(case): {}})
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
    kept = Baseline(attnbench="0.1", torch="2", cases={str(c): {} for c in cases})
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
