"""Series ranked at a length: measured, interpolated, predicted, or left out with a reason."""

from dataclasses import replace

import pytest

from attnbench.analysis.recommend import Basis, recommend
from attnbench.analysis.report import analyse
from attnbench.errors import UsageError
from attnbench.records import Cause, Mode, Outcome, Part, Run
from tests import sweeps
from tests.sweeps import sweep

SHORT = (128, 512, 2048)
QUIET = {"restart": 0.002, "noise": 0.002, "lengths": SHORT, "modes": (Mode.INFERENCE,)}
MIB = 2.0**20


def ranking(whole, seq_len, memory=None):
    found = analyse(whole)
    return recommend(found.cases, found.standings, sweeps.TOKENS, seq_len, "inference", memory)


def test_a_measured_length_is_ranked_by_measured_times():
    found = ranking(sweep(("longformer", "a", "b", "fastformer"), **QUIET), 512)
    assert {choice.basis for choice in found.choices} == {Basis.MEASURED}
    assert [choice.rank for choice in found.choices] == [1, 2, 2, 4]
    first, *_, last = found.choices
    assert (first.series, last.series) == ("fastformer:eager", "longformer:eager")
    assert first.seconds == pytest.approx(1.1e-6 * sweeps.TOKENS, rel=0.02)
    assert first.low < first.seconds < first.high
    assert first.margin.factor == 1
    assert last.margin.factor == pytest.approx(4 / 1.1, rel=0.02)
    assert last.margin.costs_more
    assert not found.excluded


@pytest.mark.parametrize(("longest", "share"), [(2048, 1 / 2), (8192, 1 / 4)])
def test_between_two_lengths_the_time_of_a_token_is_on_a_line_in_log_log(longest, share):
    """One doubling of 512, of two or of four."""
    whole = sweep(("transformer", "fastformer"), **QUIET | {"lengths": (128, 512, longest)})
    found = ranking(whole, 1024)
    slow = found.choices[1]
    assert (slow.series, slow.basis, slow.lengths) == (
        "transformer:eager",
        Basis.BETWEEN,
        (512, longest),
    )
    near, far = (ranking(whole, n).choices[1] for n in slow.lengths)
    for name in ("seconds", "low", "high", "peak_bytes"):
        expected = getattr(near, name) ** (1 - share) * getattr(far, name) ** share
        assert getattr(slow, name) == pytest.approx(expected)
    assert slow.margin.factor == pytest.approx(
        near.margin.factor ** (1 - share) * far.margin.factor**share
    )
    assert slow.margin.costs_more


def test_what_the_budget_left_out_is_predicted_and_not_ranked():
    found = ranking(sweep(("transformer", "fastformer"), lengths=(128, 16_384, 65_536)), 65_536)
    fast, slow = found.choices
    assert (fast.rank, fast.basis) == (1, Basis.MEASURED)
    assert (slow.rank, slow.basis) == (None, Basis.PREDICTED)
    assert slow.seconds > 10 * fast.seconds
    assert not slow.margin.known
    assert slow.low < slow.seconds < slow.high


@pytest.mark.parametrize(
    ("outcome", "cause"),
    [(Outcome.OOM, None), (Outcome.SKIPPED, Cause.MEMORY_LIMIT), (Outcome.FAILED, None)],
)
def test_what_does_not_run_is_left_out_with_the_reason(outcome, cause):
    def end(case):
        run = Run(case=case.key, part=Part.TIME, round=0, outcome=outcome, cause=cause)
        gone = case.mechanism == "linformer" and case.workload.seq_len == 2048
        return replace(run, reason="no room") if gone else None

    whole = sweep(("fastformer", "linformer"), end=end, **QUIET)
    for seq_len in (1024, 2048):
        (excluded,) = ranking(whole, seq_len).excluded
        assert (excluded.series, excluded.reason) == ("linformer:eager", "no room")
        assert excluded.ending == (cause or outcome)
    assert not ranking(whole, 512).excluded


def test_memory_limits_the_choice():
    whole = sweep(("transformer", "fastformer", "linformer"), **QUIET)
    peaks = {choice.series: choice.peak_bytes for choice in ranking(whole, 2048).choices}
    limit = peaks["transformer:eager"] - 1
    found = ranking(whole, 2048, limit)
    assert [excluded.series for excluded in found.excluded] == ["transformer:eager"]
    assert found.excluded[0].peak_bytes == peaks["transformer:eager"]
    assert len(ranking(whole, 2048, limit + 1).choices) == 3
    nothing = ranking(whole, 2048, 1.0)
    assert (len(nothing.choices), len(nothing.excluded)) == (0, 3)


@pytest.mark.parametrize(("seq_len", "nearest"), [(64, 128), (4096, 2048)])
def test_a_length_outside_the_sweep_names_the_nearest(seq_len, nearest):
    with pytest.raises(UsageError, match=f"the nearest is {nearest}, and attnbench sweep"):
        ranking(sweep(("fastformer",), **QUIET), seq_len)
    one = QUIET | {"lengths": (512,)}
    with pytest.raises(UsageError, match=f"--length {seq_len}: the sweep has 512 in inference;"):
        ranking(sweep(("fastformer",), **one), seq_len)


def test_a_mode_that_was_not_swept_names_those_that_were():
    found = analyse(sweep(("fastformer",), **QUIET))
    with pytest.raises(UsageError, match="--mode 'training': the sweep measured inference"):
        recommend(found.cases, found.standings, 1, 128, "training")
