"""Two sweeps case by case, and the table of what changed."""

from dataclasses import replace

import numpy as np
import pytest

from attnbench.analysis.conclusions import Answer
from attnbench.analysis.report import analyse
from attnbench.analysis.statistics.verdict import Verdict
from attnbench.commands.compare.analysis import compare
from attnbench.commands.compare.table import changes
from attnbench.records import Cause, Mode, Outcome, Part, Run, Sweep
from attnbench.report.names import named
from attnbench.report.styles import SUSPECT
from tests.sweeps import altered, changed, decoded, environment, lost, sweep

QUIET = sweep(restart=0.005, noise=0.002)


def compared(first: Sweep, second: Sweep):
    return compare(analyse(first), analyse(second))


def verdicts(first: Sweep, second: Sweep, mechanism: str = "") -> set[str]:
    rows = compared(first, second).rows
    chosen = rows[(rows["metric"] == "time_s") & rows["series"].str.startswith(mechanism)]
    return set(chosen["verdict"])


def test_a_quiet_sweep_is_the_same_as_itself():
    found = compared(QUIET, QUIET)
    assert found.differs == ()
    assert set(found.rows["verdict"]) == {"same"}
    table = changes(found)
    assert table.rows == ()
    both = "both sweeps have it in training at 128 to 65,536 and inference at 128 to 65,536"
    assert f"Time: 57 same; {both}." in table.note


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


def test_conclusions_have_the_lengths_at_which_both_measured_and_what_would_decide_the_rest():
    def end(case):
        late = case.mechanism == "fastformer" and case.workload.seq_len > 512
        return lost(case, cause=Cause.BUDGET, reason="over the budget") if late else None

    few = {"series": ("fastformer", "linformer"), "lengths": (128, 512, 2048)}
    quiet = {"restart": 0.005, "noise": 0.002, "modes": (Mode.TRAINING,), **few}
    second = changed(sweep(**quiet, seed=2, end=end), "fastformer", 1.5)
    found = compared(sweep(**quiet), second)
    times = {
        (one.series, str(one.answer)): one for one in found.conclusions if one.quantity == "time_s"
    }
    slower = times[("fastformer:eager",), "costs more"]
    assert (slower.scope.lengths, slower.missing) == ((128, 512), ())
    assert slower.scope.of_sweep == (128, 512, 2048)
    missing = times[("fastformer:eager",), "not known"]
    assert (missing.scope.lengths, missing.missing) == ((), (2048,))
    assert (missing.reason, missing.decided_by) == ("second: budget", "--budget 10m")
    note = changes(found).note
    assert "both sweeps have it in training at 128 to 2,048." in note
    (unsure,) = [
        one
        for one in compared(sweep(**quiet, rounds=1), sweep(**quiet, rounds=1, seed=2)).conclusions
        if one.quantity == "time_s" and one.series == ("linformer:eager",)
    ]
    assert (unsure.answer, unsure.decided_by) == (Answer.NOT_KNOWN, "--budget 10m")


def test_a_suspect_is_marked_and_comes_last():
    def faked(whole):
        keys = {line.case.key for line in whole.plan if line.case.mechanism == "fastformer"}
        note = {"suspect": "ignored tokens of its input"}
        return altered(whole, lambda run: replace(run, notes=note) if run.case in keys else run)

    second = changed(changed(QUIET, "fastformer", 3.0), "linformer", 1.5)
    found = compared(QUIET, faked(second))
    assert found.suspects == {"fastformer:eager"}
    (table,) = named([changes(found)], found.rows["series"], found.suspects)
    names = [row[0].text for row in table.rows]
    assert names == [*["Linformer"] * 2, *[f"Fastformer {SUSPECT}"] * 2]


def test_noise_alone_raises_few_false_alarms():
    few = {"series": ("linformer",), "lengths": (128, 512, 2048, 8192), "samples": 2}
    alarms = [
        bool(verdicts(sweep(**few, seed=s), sweep(**few, seed=s + 100)) & {"slower", "faster"})
        for s in range(20)
    ]
    assert np.mean(alarms) < 0.15


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


def test_a_sweep_of_two_machines_differs_even_from_itself():
    mixed = replace(QUIET, sessions=(environment(), environment(cores=4)))
    assert compared(mixed, mixed).differs == ("cores: 2 and 4",)


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


def test_one_round_in_either_sweep_gives_no_verdict_of_change():
    once = changed(sweep(rounds=1, restart=0.01), "fastformer", 6.0)
    for pair in ((once, QUIET), (QUIET, once), (once, sweep(rounds=1, seed=2))):
        found = compared(*pair)
        times = found.rows[found.rows["metric"] == "time_s"]
        assert set(times["verdict"]) == {Verdict.UNSURE}
        assert times["low"].isna().all()
        assert "After one round no time is called slower or faster" in changes(found).note


def test_two_sweeps_differ_in_the_bytes_of_their_states():
    grows = {"transformer": lambda n: 2048 * n}
    sizes = ({**grows, "fastformer": lambda n, size=size: size} for size in (4096, 4097))
    rows = compared(*(decoded(states, lengths=(128, 512)) for states in sizes)).rows
    states = rows[rows["metric"] == "state_bytes"].groupby("series")["verdict"].unique()
    assert states["transformer:eager"] == ["same"]
    assert states["fastformer:eager"] == ["slower"]
