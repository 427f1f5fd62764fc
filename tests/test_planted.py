"""Planted bugs: the tests find them, and what changes nothing is none."""

from dataclasses import replace

import pytest

from tests import planted

QUICK = ("records/units.py",)  # whose tests take seconds


def test_a_bug_that_changes_nothing_is_none():
    bug = planted.stored()[0]
    commented = replace(bug, new=f"{bug.old}  # as it was\n")
    assert "changes nothing" in next(commented.problems())
    assert "stands there 0 times" in next(replace(bug, old="no line of this").problems())


@pytest.mark.long
def test_planted_bugs_are_found():
    """Those whose tests are quick; `python -m tests.planted` plants all."""
    results = {str(bug): result for bug, result in planted.found(QUICK)}
    assert results
    assert all(result.startswith("tests/") for result in results.values()), results
