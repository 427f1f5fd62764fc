"""Two sweeps in one table: what changed, in rows for lengths, and what was not found."""

from dataclasses import replace

import pytest

from attnbench.commands.compare.table import changes
from attnbench.records import Cause, Outcome, Part, Run, Sweep
from attnbench.report.names import with_labels
from attnbench.report.styles import SUSPECT
from tests.commands.compare.pairs import QUIET, compared, verdicts
from tests.sweeps import altered, changed, environment, sweep


def test_only_what_became_slower_is_called_slower_in_one_row_for_its_lengths():
    second = changed(sweep(restart=0.005, noise=0.002, seed=2), "fastformer", 1.5)
    assert verdicts(QUIET, second, "fastformer") == {"slower"}
    assert verdicts(second, QUIET, "fastformer") == {"faster"}
    assert not verdicts(QUIET, second, "linformer") & {"slower", "faster"}
    rows = changes(compared(QUIET, second)).rows
    assert [[cell.text for cell in row[:4]] for row in rows] == [
        ["fastformer:eager", mode, "128 to 65,536", "time"] for mode in ("training", "inference")
    ]
    assert all(row[4].low < 1.5 < row[4].high and row[5].text == "slower" for row in rows)


def test_a_suspect_is_marked_and_comes_last():
    def faked(whole):
        keys = {line.case.key for line in whole.plan if line.case.mechanism == "fastformer"}
        note = {"suspect": "ignored tokens of its input"}
        return altered(whole, lambda run: replace(run, notes=note) if run.case in keys else run)

    second = changed(changed(QUIET, "fastformer", 3.0), "linformer", 1.5)
    found = compared(QUIET, faked(second))
    assert found.suspects == {"fastformer:eager"}
    (table,) = with_labels([changes(found)], found.rows["series"], found.suspects)
    names = [row[0].text for row in table.rows]
    assert names == [*["Linformer"] * 2, *[f"Fastformer {SUSPECT}"] * 2]


def having(whole: Sweep, **settings: object) -> Sweep:
    request = replace(whole.request, settings=replace(whole.request.settings, **settings))
    return replace(whole, request=request)


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        (sweep(machine=environment(torch="2.12.0", threads=1)),
         ("threads: 2 and 1", "torch: 2.13.0 and 2.12.0")),
        (sweep(machine=environment(tf32=True)), ("TF32: False and True",)),
        (having(QUIET, clock="CPU time"), ("clock: wall time and CPU time",)),
        (having(QUIET, cold=True), ("cold: False and True",)),
    ],
)  # fmt: skip
def test_other_conditions_are_named_beside_what_changed(other, differs):
    found = compared(QUIET, other)
    assert found.differs == differs
    assert f"What changed may come from this: {'; '.join(differs)}." in changes(found).note


def test_what_one_sweep_lacks_is_one_row_with_its_lengths_and_the_reason():
    gone = {"fastformer:eager": "second: no case", "linformer:eager": "second: budget"}
    skipped = Run(case="", part=Part.TIME, round=0, outcome=Outcome.SKIPPED, cause=Cause.BUDGET)
    runs = [
        replace(skipped, case=run.case, reason=f"predicted {i} s") if "linf" in run.case else run
        for i, run in enumerate(QUIET.runs)
    ]
    plan = tuple(p for p in QUIET.plan if p.case.mechanism != "fastformer")
    found = changes(compared(QUIET, replace(QUIET, plan=plan, runs=tuple(runs))))
    rows = [[cell.text for cell in row] for row in found.rows]
    assert {(row[0], row[6]) for row in rows} == {*gone.items()}
    assert [row[1:3] for row in rows if "linf" in row[0]] == [
        [mode, "128 to 65,536"] for mode in ("training", "inference")
    ]


def test_a_quiet_sweep_is_the_same_as_itself():
    found = compared(QUIET, QUIET)
    assert found.differs == ()
    assert set(found.rows["verdict"]) == {"same"}
    table = changes(found)
    assert table.rows == ()
    both = "both sweeps have it in training at 128 to 65,536 and inference at 128 to 65,536"
    assert f"Time: 57 same; {both}." in table.note
