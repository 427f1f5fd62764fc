"""Series that are shown and not ranked: their signs, and times that include launches."""

import pandas as pd
import pytest

from attnbench.analysis.suspects import LEAK, rankable, suspects, without_launches
from attnbench.records import Outcome, Part, Run
from attnbench.records.notes import Note

NAMES = {"a1": "a", "a2": "a", "b1": "b"}


def run(case, suspect="", kept_bytes=0.0):
    notes = {Note.SUSPECT: suspect} if suspect else {}
    return Run(
        case=case,
        part=Part.TIME,
        round=0,
        outcome=Outcome.OK,
        notes=notes,
        values={"kept_bytes": kept_bytes},
    )


def test_signs_of_all_runs_of_a_series_stand_once_in_their_order():
    runs = [run("a1", "slow; odd"), run("a2", "odd; new"), run("b1")]
    assert suspects(runs, NAMES, ()) == {"a": "slow; odd; new", "b": ""}


@pytest.mark.parametrize(("kept", "leaks"), [(LEAK, False), (LEAK + 1, True)])
def test_the_most_that_an_iteration_leaves_is_said(kept, leaks):
    found = suspects([run("a1", kept_bytes=kept), run("a2", kept_bytes=7)], NAMES, ())["a"]
    assert bool(found) is leaks
    assert found in ("", "keeps 64.00 KiB with each iteration")


def test_what_is_faster_than_reading_its_input_is_suspect_though_nothing_else_is():
    found = suspects([run("b1", "odd")], NAMES, ("a", "b"))
    assert found["a"] == "took less time than reading its input takes"
    assert found["b"] == f"odd; {found['a']}"


def test_what_is_unknown_by_name_is_called_by_its_case():
    assert suspects([run("c", "odd")], NAMES, ()) == {"c": "odd"}


def cases():
    return pd.DataFrame(
        {
            "series": ["a", "b", "c"],
            "suspect": ["", "odd", ""],
            "shows_launches": [False, False, True],
            "time_s": [1.0, 2.0, 3.0],
            "time_lo_s": [0.9, 1.9, 2.9],
            "token_s": [0.1, 0.2, 0.3],
            "energy_j": [5.0, 6.0, 7.0],
        }
    )


def test_times_that_include_launches_are_left_out_and_nothing_else():
    found = without_launches(cases())
    for name in ("time_s", "time_lo_s", "token_s"):
        assert found[name].isna().tolist() == [False, False, True]
    assert found["energy_j"].tolist() == [5.0, 6.0, 7.0]
    assert cases()["time_s"].notna().all()


def test_a_suspect_is_not_ranked():
    assert rankable(cases())["series"].tolist() == ["a", "c"]
