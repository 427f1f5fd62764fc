"""What an analysis makes of a sweep: whom it compares with, what is precise, and what is odd."""

from dataclasses import replace

import pytest

from attnbench.analysis.conclusions import Question
from attnbench.analysis.report import analyse
from attnbench.errors import UnknownMechanism
from attnbench.records import Disturbance, Mode, Part
from attnbench.records.notes import Note
from tests.sweeps import altered, lost, sweep

LENGTHS = (128, 256, 512)


def whole(series=("fastformer", "transformer", "linformer"), **how):
    return sweep(series, **{"lengths": LENGTHS, "modes": (Mode.INFERENCE,), **how})


def of(mechanism, change, part=None):
    """The usual sweep, with the runs of one mechanism changed."""

    def changed(run):
        return change(run) if f'"{mechanism}"' in run.case else run

    return altered(whole(), changed, part)


def test_series_are_compared_with_softmax_attention_or_else_with_the_first():
    assert analyse(whole()).baselines == ("transformer:eager",)
    assert analyse(whole(("linformer", "fastformer"))).baselines == ("linformer:eager",)
    assert analyse(whole(), "fastformer").baselines == ("fastformer:eager",)
    assert analyse(whole(), "fastformer:eager").baselines == ("fastformer:eager",)


def test_a_suspect_is_compared_with_only_where_nothing_else_is_there():
    suspected = of("transformer", lambda run: replace(run, notes={Note.SUSPECT: "odd"}))
    found = analyse(suspected)
    assert found.suspects == {"transformer:eager": "odd"}
    assert found.baselines == ("fastformer:eager",)
    assert analyse(of("linformer", lambda run: run), "linformer").baselines == ("linformer:eager",)


def test_one_that_was_not_timed_at_the_front_is_not_compared_with():
    """A suspect does not hold the front back."""

    def end(case):
        too_long = case.mechanism == "linformer" and case.workload.seq_len > 128
        return lost(case) if too_long else None

    def suspected(run):
        return replace(run, notes={Note.SUSPECT: "odd"}) if '"linformer"' in run.case else run

    found = analyse(altered(whole(end=end), suspected), "linformer")
    assert found.answers.front("inference").seq_len == 512
    assert found.baselines == ("transformer:eager",)
    assert found.not_compared("inference") == ("linformer:eager",)
    assert analyse(whole(), "linformer").not_compared("inference") == ()


def test_an_unknown_name_is_refused_with_those_that_are_there():
    with pytest.raises(UnknownMechanism, match="known: fastformer, transformer, linformer"):
        analyse(whole(), "reformer")


def test_the_least_precise_form_comes_first_with_its_largest_error():
    errors = {"fastformer": 1e-7, "transformer": 3e-6}

    def measured(run):
        name = next((name for name in errors if f'"{name}"' in run.case), None)
        long = '"seq_len":512' in run.case
        return (
            replace(run, values={**run.values, "error": errors[name] * (1 + long)})
            if (name)
            else run
        )

    found = analyse(altered(whole(), measured, Part.MEMORY)).precision
    assert found["mechanism"].tolist() == ["transformer", "fastformer"]
    assert found["error"].tolist() == [6e-6, 2e-7]
    assert analyse(whole()).precision.empty


def test_the_share_of_disturbed_laps_is_of_all_that_were_timed():
    def disturbed(run):
        first, *others = run.samples
        return replace(run, samples=(first._replace(disturbed=Disturbance.FAULTS), *others))

    assert analyse(whole()).disturbed == 0.0
    found = analyse(altered(whole(), disturbed, Part.TIME)).disturbed
    assert found == pytest.approx(1 / 8)


def test_without_two_series_there_is_no_speed_up():
    assert analyse(whole(("fastformer",))).speedups is None
    assert len(analyse(whole()).speedups) > 0


def test_conclusions_are_asked_for_by_question_mode_and_series():
    found = analyse(whole(modes=(Mode.INFERENCE, Mode.TRAINING)))
    crossings = found.about(Question.FASTER_FROM)
    inference = found.about(Question.FASTER_FROM, "inference", "linformer:eager")
    assert 0 < len(inference) < len(crossings)
    assert {one.mode for one in inference} == {"inference"}
    assert found.modes == ["inference", "training"]
