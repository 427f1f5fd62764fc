"""What a sweep found, as data."""

from dataclasses import replace

import pytest

from attnbench.analysis.answers import Limit, Speed, Unmeasured
from attnbench.analysis.report import analyse
from attnbench.records import Cause, Mode, Outcome, Part, Run
from tests import sweeps
from tests.sweeps import sweep

QUIET = {"restart": 0.002, "noise": 0.002}
SHORT = (128, 512, 2048)


def places(spans, mode):
    return {place.seq_len: place for span in spans if span.mode == mode for place in span.places}


def test_the_fastest_of_each_length_and_the_next():
    found = analyse(sweep(**QUIET)).answers
    (span,) = [span for span in found.fastest if span.mode == "inference"]
    assert [place.seq_len for place in span.places] == list(sweeps.LENGTHS)
    assert {place.first for place in span.places} == {"fastformer:eager"}
    assert not any(place.ties or place.unsure for place in span.places)
    assert all(place.rest.margin.low > 1 for place in span.places)
    # 1.5 µs against 1.6 µs and more for a token
    assert {place.rest.series for place in span.places} == {"linformer:eager"}
    assert (span.places[0].measured, span.places[-1].measured) == (3, 2)


def test_series_that_do_not_differ_tie_and_their_lengths_are_one_span():
    found = analyse(sweep(("a", "b", "longformer"), lengths=SHORT, **QUIET)).answers
    assert [(span.mode, len(span.places)) for span in found.fastest] == [
        ("training", 3),
        ("inference", 3),
    ]
    for span in found.fastest:
        for place in span.places:
            (tie,) = place.ties
            assert {place.first, tie.series} == {"a:eager", "b:eager"}
            assert tie.margin.low <= 1 <= tie.margin.high
            assert place.rest.series == "longformer:eager"


def test_another_winner_begins_another_span():
    whole = sweep(("transformer", "longformer"), lengths=(128, 512, 4096, 8192), **QUIET)
    found = analyse(whole).answers.fastest
    assert [[(p.first, p.seq_len) for p in span.places] for span in found] == 2 * [
        [("transformer:eager", 128), ("transformer:eager", 512)],
        [("longformer:eager", 4096), ("longformer:eager", 8192)],
    ]


def test_a_length_without_a_time_ends_a_span():
    def end(case):
        return skipped(case) if case.workload.seq_len == 512 else None

    whole = sweep(("fastformer", "linformer"), lengths=SHORT, modes=(Mode.INFERENCE,), end=end)
    found = analyse(whole).answers
    assert [[p.seq_len for p in span.places] for span in found.fastest] == [[128], [2048]]


def test_each_series_is_compared_with_the_transformer():
    whole = sweep(("transformer", "fastformer", "linear_transformer", "longformer"), **QUIET)
    found = {(a.mode, a.series): a for a in analyse(whole).answers.against}
    assert analyse(whole).answers.baseline == "transformer:eager"
    fast = found["inference", "fastformer:eager"]
    assert fast.finding is Speed.FASTER
    assert fast.at == 32_768  # the transformer has no time beyond
    assert fast.ratio == pytest.approx((1.6 + 1.5e-3 * 32_768) / 1.1, rel=0.05)
    assert fast.ratio_low < fast.ratio < fast.ratio_high
    assert found["training", "fastformer:eager"].at == 16_384
    # equal where 1.6 µs + 1.5 ns · N is 4 µs
    slow = found["training", "longformer:eager"]
    assert slow.finding is Speed.FASTER_FROM
    assert slow.low <= 1600 * 1.1
    assert slow.high >= 1600 / 1.1
    assert slow.shortest == 128


def test_a_series_that_becomes_slower_is_not_called_never_faster():
    whole = replace(sweep(("transformer", "fastformer", "longformer"), **QUIET))
    against = {a.series: a for a in analyse(whole, "longformer").answers.against}
    assert against["transformer:eager"].finding is Speed.SLOWER_FROM
    assert against["transformer:eager"].length == pytest.approx(1600, rel=0.1)
    assert against["fastformer:eager"].finding is Speed.FASTER
    against = {a.series: a for a in analyse(whole, "fastformer").answers.against}
    assert against["longformer:eager"].finding is Speed.SLOWER


def test_after_one_round_nothing_is_certain():
    found = analyse(sweep(rounds=1, **QUIET)).answers
    assert not found.intervals
    assert {a.finding for a in found.against} == {Speed.UNCLEAR}
    for span in found.fastest:
        for place in span.places:
            assert place.rest is None
            assert not place.ties
            assert len(place.unsure) == place.measured - 1


def test_forms_of_a_mechanism_are_the_same_function_unless_they_depart():
    whole = sweep(("transformer:eager", "transformer:sdpa", "fastformer"), lengths=SHORT, **QUIET)
    same = {a.series: a.same_function for a in analyse(whole).answers.against}
    assert same == {"transformer:sdpa": True, "fastformer:eager": False}
    keys = {p.case.key for p in whole.plan if p.case.form == "sdpa"}
    notes = {"departs": "scales by d", "package": "p 1"}
    runs = tuple(replace(run, notes=notes) if run.case in keys else run for run in whole.runs)
    departing = analyse(replace(whole, runs=runs)).answers
    assert not any(a.same_function for a in departing.against)


def test_limits_are_those_of_memory_and_time_and_not_of_the_budget():
    found = analyse(sweep(("transformer", "fastformer"))).answers
    assert found.limits == (
        Limit(mode="training", series="transformer:eager", fits=16_384, stops=32_768, cause="oom"),
    )
    assert found.limits[0].is_memory
    assert not found.limits[0].is_predicted


@pytest.mark.parametrize("cause", [Cause.MEMORY_LIMIT, Cause.CASE_TIMEOUT])
def test_a_predicted_limit_is_one(cause):
    def end(case):
        return replace(skipped(case), cause=cause) if case.workload.seq_len > 128 else None

    (limit,) = analyse(
        sweep(("fastformer",), lengths=SHORT, modes=(Mode.TRAINING,), end=end)
    ).answers.limits
    assert (limit.fits, limit.stops, limit.is_predicted) == (128, 512, True)
    assert limit.is_memory == (cause is Cause.MEMORY_LIMIT)


def test_what_was_not_measured_is_counted_by_reason():
    found = analyse(sweep()).answers
    # over the budget in two modes, and out of memory once
    assert found.missing == (
        Unmeasured(
            outcome="skipped",
            cause="budget",
            cases=2,
            series=("transformer:eager",),
            shortest=65_536,
            longest=65_536,
            reason="over the budget: predicted 370 s",
        ),
        Unmeasured(
            outcome="oom",
            cause="",
            cases=1,
            series=("transformer:eager",),
            shortest=32_768,
            longest=32_768,
            reason="can't allocate memory: 48.0 GiB",
        ),
    )
    assert (found.cases, found.timed) == (60, 57)


def test_the_least_memory_ties_within_the_tolerance_of_peaks():
    whole = sweep(("fastformer", "linformer", "transformer"), lengths=SHORT, modes=(Mode.TRAINING,))
    first = analyse(whole).answers.smallest[0].places[0]
    assert [tie.series for tie in first.ties] == ["linformer:eager"]
    keys = {p.case.key for p in whole.plan if p.case.mechanism == "fastformer"}
    runs = tuple(
        replace(run, values={**run.values, "allocated_peak_bytes": 1e6})
        if run.case in keys and run.part is Part.MEMORY
        else run
        for run in whole.runs
    )
    (span,) = analyse(replace(whole, runs=runs)).answers.smallest
    assert {p.first for p in span.places} == {"fastformer:eager"}
    assert not any(p.ties for p in span.places)


def skipped(case):
    return Run(
        case=case.key, part=Part.TIME, round=0, outcome=Outcome.SKIPPED, cause=Cause.BUDGET,
        reason="over the budget",
    )  # fmt: skip
