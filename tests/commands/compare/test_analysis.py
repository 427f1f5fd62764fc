"""Two sweeps case by case, and the table of what changed."""

from dataclasses import replace

import numpy as np
import pytest

from attnbench.analysis.conclusions import Answer
from attnbench.analysis.statistics.verdict import Verdict, discoveries
from attnbench.analysis.suspects import SHOWS_LAUNCHES
from attnbench.commands.compare import analysis
from attnbench.commands.compare.table import changes
from attnbench.records import Cause, Mode, Part
from tests.commands.compare.pairs import QUIET, compared, verdicts
from tests.sweeps import altered, changed, decoded, environment, lost, sweep


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


@pytest.mark.long
def test_noise_alone_raises_few_false_alarms():
    few = {"series": ("linformer",), "lengths": (128, 512, 2048, 8192), "samples": 2}
    alarms = [
        bool(verdicts(sweep(**few, seed=s), sweep(**few, seed=s + 100)) & {"slower", "faster"})
        for s in range(20)
    ]
    assert np.mean(alarms) < 0.15


def test_a_sweep_of_two_machines_differs_even_from_itself():
    mixed = replace(QUIET, sessions=(environment(), environment(cores=4)))
    assert compared(mixed, mixed).differs == ("cores: 2 and 4",)


def test_one_round_in_either_sweep_gives_no_verdict_of_change():
    once = changed(sweep(rounds=1, restart=0.01), "fastformer", 6.0)
    for pair in ((once, QUIET), (QUIET, once), (once, sweep(rounds=1, seed=2))):
        found = compared(*pair)
        times = found.rows[found.rows["metric"] == "time_s"]
        assert set(times["verdict"]) == {Verdict.UNSURE}
        assert times["low"].isna().all()
        assert (
            "Where a sweep repeated no case, no time is called slower or faster"
            in changes(found).note
        )


def test_two_sweeps_differ_in_the_bytes_of_their_states():
    grows = {"transformer": lambda n: 2048 * n}
    sizes = ({**grows, "fastformer": lambda n, size=size: size} for size in (4096, 4097))
    rows = compared(*(decoded(states, lengths=(128, 512)) for states in sizes)).rows
    states = rows[rows["metric"] == "state_bytes"].groupby("series")["verdict"].unique()
    assert states["transformer:eager"] == ["same"]
    assert states["fastformer:eager"] == ["slower"]


def test_a_time_that_includes_launches_is_neither_slower_nor_part_of_the_correction(monkeypatch):
    """Of a GPU, where launches began to show in the second sweep."""
    few = {"series": ("fastformer", "linformer"), "lengths": (128, 512), "restart": 0.005}
    first = sweep(**few, noise=0.002)
    later = changed(sweep(**few, noise=0.002, seed=2), "fastformer", 1.5)
    keys = {line.case.key for line in later.plan if line.case.mechanism == "fastformer"}
    notes = {"launches": "seen"}
    shown = altered(
        later, lambda run: replace(run, notes=notes) if run.case in keys else run, Part.TIME
    )
    asked = []
    monkeypatch.setattr(analysis, "discoveries", lambda p: asked.extend(p) or discoveries(p))
    for pair in ((first, shown), (shown, first)):
        found = compared(*pair)
        rows = found.rows[found.rows["metric"] == "time_s"].set_index("series")
        assert set(rows.loc["fastformer:eager", "verdict"]) == {Verdict.UNSURE}
        assert set(rows.loc["fastformer:eager", "reason"]) == {SHOWS_LAUNCHES}
        assert set(rows.loc["linformer:eager", "reason"]) == {""}
        tested = np.isfinite(asked).sum()
        assert tested == len(rows) // 2
        asked.clear()
        unsure = {
            (one.reason, one.decided_by)
            for one in found.conclusions
            if one.series == ("fastformer:eager",) and one.quantity == "time_s"
        }
        assert unsure == {(SHOWS_LAUNCHES, "--cuda-graphs")}
