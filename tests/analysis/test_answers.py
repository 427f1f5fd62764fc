"""What a sweep found, as data."""

import math
from dataclasses import replace
from functools import partial

import pytest

from attnbench.analysis.conclusions import Answer, Question
from attnbench.analysis.report import analyse
from attnbench.commands.recommend.analysis import recommend
from attnbench.errors import UnknownMechanism
from attnbench.records import Cause, Mode, Outcome, Part, Run
from attnbench.report.answers import answer
from tests import sweeps
from tests.sweeps import altered, lost, sweep

QUIET = {"restart": 0.002, "noise": 0.002}
SHORT = (128, 512, 2048)
skipped = partial(lost, cause=Cause.BUDGET)


def test_the_fastest_of_each_length_and_the_next():
    found = analyse(sweep(**QUIET)).answers
    own = [winner for winner in found.fastest if winner.mode == "inference"]
    assert [winner.seq_len for winner in own] == list(sweeps.LENGTHS)
    assert {winner.first for winner in own} == {"fastformer:eager"}
    assert not any(winner.ties or winner.unsure for winner in own)
    assert all(winner.runner_up.margin.low > 1 for winner in own)
    # 1.5 µs against 1.6 µs and more for a token
    assert {winner.runner_up.series for winner in own} == {"linformer:eager"}
    assert (own[0].measured, own[-1].measured) == (3, 2)


def test_series_that_do_not_differ_tie():
    found = analyse(sweep(("a", "b", "longformer"), lengths=SHORT, **QUIET)).answers
    assert [winner.mode for winner in found.fastest] == 3 * ["training"] + 3 * ["inference"]
    for winner in found.fastest:
        (tie,) = winner.ties
        assert {winner.first, tie.series} == {"a:eager", "b:eager"}
        assert tie.margin.low <= 1 <= tie.margin.high
        assert winner.runner_up.series == "longformer:eager"
    whole = sweep(("transformer", "longformer"), lengths=(128, 512, 4096, 8192), **QUIET)
    firsts = ["transformer:eager", "transformer:eager", "longformer:eager", "longformer:eager"]
    assert [winner.first for winner in analyse(whole).answers.fastest] == 2 * firsts


@pytest.mark.parametrize(
    ("part", "change"),
    [
        (Part.TIME, {"notes": {"suspect": "ignored tokens of its input"}}),
        (Part.MEMORY, {"values": {"kept_bytes": 2e6, "allocated_peak_bytes": 1.0}}),
    ],
)
def test_what_does_not_do_its_work_is_shown_and_not_ranked(part, change):
    whole = sweep(("fastformer", "linformer", "transformer"), lengths=SHORT, **QUIET)
    worst = whole.plan[0].case.key  # one case of a series is enough
    suspect = altered(whole, lambda r: replace(r, **change) if r.case == worst else r, part)
    found = analyse(suspect)
    name = "fastformer:eager"
    assert name in set(found.rows["series"])
    assert found.baselines == ("transformer:eager",)
    others = (p for p in suspect.plan if p.case.mechanism != "transformer")
    assert analyse(replace(suspect, plan=tuple(others))).baselines == ("linformer:eager",)
    winners = (*found.answers.fastest, *found.answers.least_memory)
    assert {winner.first for winner in winners} == {"linformer:eager"}
    assert {winner.measured for winner in winners} == {2}
    assert name not in {*found.crossovers["series"], *found.crossovers["other"]}
    advice = recommend(found, 512)
    advice = advice[advice["mode"] == "inference"]
    assert list(advice["series"]) == ["linformer:eager", "transformer:eager", name]
    assert advice["rank"].isna().tolist() == [False, False, True]
    reason = found.cases.loc[found.cases["series"] == name, "suspect"].iloc[0]
    assert list(advice["excluded"]) == ["", "", reason]
    assert reason != ""


def test_a_series_is_selected_by_its_name_or_its_mechanism():
    whole = sweep(("longformer", "transformer"), lengths=(128,))
    for name in ("transformer", "transformer:eager"):
        assert analyse(whole, name).against == ("transformer:eager",)
    with pytest.raises(UnknownMechanism, match=r"no mechanism 'x' .* longformer, transformer"):
        analyse(whole, "x")


def test_the_baseline_is_softmax_attention_unless_another_series_is_chosen():
    assert analyse(sweep(("fastformer", "transformer"))).baselines == ("transformer:eager",)
    assert analyse(sweep(("fastformer", "linformer"))).baselines == ("fastformer:eager",)
    found = analyse(sweep(), "linformer")
    assert found.baselines == found.against == ("linformer:eager",)
    assert "linformer:eager" not in set(found.speedups["series"])
    assert analyse(sweep(("fastformer",))).speedups is None


def failing(mechanism, *modes):
    """What ends every case of a mechanism in these modes."""

    def end(case):
        gone = case.mechanism == mechanism and case.workload.mode in modes
        return lost(case, Outcome.FAILED, reason="N must be a multiple of 64") if gone else None

    return end


def test_the_baseline_was_timed_where_the_answer_is_given():
    series = ("multiple", "fastformer", "linformer")
    every = analyse(sweep(series, lengths=SHORT, end=failing("multiple", *Mode)))
    assert every.baselines == ("fastformer:eager",)
    assert every.speedups["ratio"].notna().all()
    # one that was timed in both modes, so that both compare with the same
    one_mode = analyse(sweep(series, lengths=SHORT, end=failing("multiple", Mode.TRAINING)))
    assert one_mode.baselines == ("fastformer:eager",)
    chosen = analyse(one_mode.sweep, "multiple")
    assert chosen.baselines_by_mode == {
        "training": ("fastformer:eager",),
        "inference": ("multiple:eager",),
    }
    assert chosen.not_compared("training") == ("multiple:eager",)
    assert chosen.not_compared("inference") == ()


def test_a_length_without_a_time_has_no_place():
    def end(case):
        return skipped(case) if case.workload.seq_len == 512 else None

    whole = sweep(("fastformer", "linformer"), lengths=SHORT, modes=(Mode.INFERENCE,), end=end)
    assert [winner.seq_len for winner in analyse(whole).answers.fastest] == [128, 2048]
    untimed = analyse(sweep(("fastformer",), lengths=SHORT, end=skipped))
    assert untimed.answers.seq_len is None
    assert not len(untimed.rows)


def crossed(whole, against=None):
    """The row of each series at the length of the answers, by mode and series."""
    found = analyse(whole, against).rows
    return {(row["mode"], row["series"]): row for _, row in found.iterrows()}


def test_each_series_is_compared_with_the_transformer():
    whole = sweep(("transformer", "fastformer", "longformer"), **QUIET)
    found = crossed(whole)
    fast = found["inference", "fastformer:eager"]
    # the Transformer has no time beyond
    assert fast["answer_ahead"] == Answer.FASTER_AT
    assert fast["to_len_ahead"] == 32_768
    assert found["training", "fastformer:eager"]["to_len_ahead"] == 16_384
    # equal where 1.6 µs + 1.5 ns · N is 4 µs
    slow = found["training", "longformer:eager"]
    assert (slow["answer_ahead"], slow["from_len_ahead"]) == (Answer.FROM, 128)
    assert (slow["low_ahead"], slow["high_ahead"]) == (1024, 2048)
    against = crossed(whole, "longformer")  # the Transformer is not called never faster
    row = against["training", "transformer:eager"]
    assert (row["answer_ahead"], row["answer_back"]) == (Answer.UP_TO, Answer.FROM)
    assert row["length_back"] == pytest.approx(1600, rel=0.1)
    assert against["training", "fastformer:eager"]["answer_ahead"] == Answer.ALL


def test_after_one_round_nothing_is_certain():
    whole = sweep(rounds=1, **QUIET)
    found = analyse(whole).answers
    others = [row for (_, series), row in crossed(whole).items() if "transformer" not in series]
    assert {row["answer_ahead"] for row in others} == {Answer.NOT_KNOWN}
    assert all(math.isnan(row["ratio_low"]) for row in crossed(whole).values())
    for winner in found.fastest:
        assert winner.runner_up is None
        assert not winner.ties
        assert len(winner.unsure) == winner.measured - 1


@pytest.mark.parametrize("cause", [Cause.MEMORY_LIMIT, Cause.CASE_TIMEOUT])
def test_a_predicted_limit_is_one(cause):
    def end(case):
        return lost(case, cause=cause) if case.workload.seq_len > 128 else None

    whole = sweep(("fastformer",), lengths=SHORT, modes=(Mode.TRAINING,), end=end)
    (limit,) = analyse(whole).answers.missing
    assert (limit.lengths, limit.cause, limit.is_limit) == ((512, 2048), cause, True)


def test_each_mode_has_its_answer_at_the_longest_length_that_all_mechanisms_reached_in_it():
    whole = sweep(("transformer", "fastformer"))
    found = analyse(whole)
    fronts = {front.mode: front for front in found.answers.fronts}
    assert {mode: front.seq_len for mode, front in fronts.items()} == {
        "training": 16_384,
        "inference": 32_768,
    }
    assert fronts["training"].reached == {"transformer:eager": 16_384, "fastformer:eager": 65_536}
    assert found.answers.seq_len == 16_384
    assert len(found.rows) == 4
    fast = found.rows[found.rows["series"] == "fastformer:eager"].set_index("mode")
    assert dict(fast["seq_len"]) == {"training": 16_384, "inference": 32_768}
    truth = (1.6 + 1.5e-3 * 32_768) / 1.1
    assert fast.loc["inference", "ratio"] == pytest.approx(truth, rel=0.05)


@pytest.mark.parametrize(("reached", "short"), [(128, True), (512, False)])
def test_a_front_is_short_where_most_series_went_more_than_four_times_as_far(reached, short):
    def end(case):
        late = case.mechanism == "transformer" and case.workload.seq_len > reached
        return skipped(case) if late else None

    (front,) = analyse(sweep(lengths=SHORT, modes=(Mode.TRAINING,), end=end)).answers.fronts
    assert (front.seq_len, front.is_short) == (reached, short)


def test_the_common_front_is_that_of_all_series_also_of_several_forms():
    def end(case):
        gone = case.form == "eager" and case.mechanism == "transformer"
        return skipped(case) if gone and case.workload.seq_len > 128 else None

    series = ("transformer:eager", "transformer:sdpa", "fastformer")
    found = analyse(sweep(series, lengths=SHORT, end=end))
    assert found.answers.seq_len == 128
    assert found.answers.front("inference").is_common
    note = answer(found)[0].note
    assert "N = 128 is the longest length at which each of 3 series was timed; the last" in note
    assert analyse(sweep(series[1:], lengths=SHORT, end=end)).answers.seq_len == 2048


def test_where_no_length_is_common_the_note_says_how_many_series_were_timed():
    def end(case):
        short = case.workload.seq_len < 2048
        return skipped(case) if short == (case.mechanism == "linformer") else None

    found = analyse(sweep(("fastformer", "linformer", "transformer"), lengths=SHORT, end=end))
    front = found.answers.front("training")
    assert (front.timed, front.series, front.is_common) == (2, 3, False)
    said = f"No length was timed for each of 3 series; N = {front.seq_len} is the longest of those"
    assert f"{said} at which the most were, 2" in answer(found)[0].note


def test_a_suspect_does_not_hold_the_common_front_back():
    def end(case):
        gone = case.mechanism == "fastformer" and case.workload.seq_len > 128
        return skipped(case) if gone else None

    whole = sweep(("fastformer", "linformer", "transformer"), lengths=SHORT, end=end)
    assert analyse(whole).answers.seq_len == 128
    keys = {p.case.key for p in whole.plan if p.case.mechanism == "fastformer"}
    note = {"suspect": "ignored tokens of its input"}
    fake = altered(whole, lambda run: replace(run, notes=note) if run.case in keys else run)
    assert analyse(fake).answers.seq_len == 2048


def test_the_least_memory_ties_within_the_tolerance_of_peaks():
    whole = sweep(("fastformer", "linformer", "transformer"), lengths=SHORT, modes=(Mode.TRAINING,))
    first = analyse(whole).answers.least_memory[0]
    assert [tie.series for tie in first.ties] == ["linformer:eager"]
    keys = {p.case.key for p in whole.plan if p.case.mechanism == "fastformer"}
    less = {"allocated_peak_bytes": 1e6}
    small = altered(whole, lambda run: replace(run, values=less) if run.case in keys else run)
    smallest = analyse(small).answers.least_memory
    assert {winner.first for winner in smallest} == {"fastformer:eager"}
    assert not any(winner.ties for winner in smallest)


def test_a_peak_that_misses_memory_is_not_ranked_by_it():
    whole = sweep(("fastformer", "linformer", "transformer"), lengths=SHORT, modes=(Mode.TRAINING,))
    keys = {p.case.key for p in whole.plan if p.case.mechanism == "fastformer"}
    less = {"allocated_peak_bytes": 1e6}
    notes = {"uncounted": "what 2 threads of its own allocated"}
    missed = altered(
        whole,
        lambda run: replace(run, values=less, notes=notes) if run.case in keys else run,
        Part.MEMORY,
    )
    found = analyse(missed)
    assert all(winner.first == "linformer:eager" for winner in found.answers.least_memory)
    own = [one for one in found.conclusions if one.question is Question.LEAST_MEMORY]
    assert own
    for one in own:
        assert "fastformer:eager" in {lost.series for lost in one.left_out}
        assert "fastformer:eager" not in {*one.series, *one.against}
    (said,) = {text for text in found.warnings if "miss memory" in text}
    assert said.endswith("outside of torch: what 2 threads of its own allocated")


def test_rows_of_a_sweep_without_a_pair_that_was_compared():
    """No two series were timed at one length."""

    def end(case):
        alone = "fastformer" if case.workload.seq_len == 128 else "transformer"
        return None if case.mechanism == alone else skipped(case)

    found = analyse(sweep(("fastformer", "transformer"), lengths=(128, 512), end=end))
    assert {*found.rows["mode"]} == {"training", "inference"}


def test_times_that_include_launches_take_no_part_in_ranks_exponents_and_crossovers():
    """The longest cases of a series that is fastest there would bend its curve."""
    whole = sweep(("fastformer", "transformer"), modes=(Mode.INFERENCE,), **QUIET)
    keys = {
        p.case.key: p.case.workload.seq_len for p in whole.plan if p.case.mechanism == "fastformer"
    }

    def shown(run: Run) -> Run:
        late = run.part is Part.TIME and keys.get(run.case, 0) >= 8192
        slower = tuple(s._replace(wall_s=5 * s.wall_s) for s in run.samples)
        return replace(run, samples=slower, notes={"launches": "not hidden"}) if late else run

    usual, bent = analyse(whole), analyse(altered(whole, shown, Part.TIME))
    assert bent.cases["shows_launches"].sum() == sum(n >= 8192 for n in keys.values())
    fastest = {winner.seq_len for winner in bent.answers.fastest if winner.measured == 2}
    assert fastest == {128, 256, 512, 1024, 2048, 4096}
    rows = bent.exponents.set_index(["series", "metric"])
    assert rows.loc["fastformer:eager", "time_s"]["exponent"] == pytest.approx(1.0, abs=0.01)
    assert rows.loc["fastformer:eager", "time_s"]["to_len"] == 4096
    assert rows.loc["fastformer:eager", "allocated_peak_bytes"]["to_len"] == 65536
    assert bent.crossovers["answer"].tolist() == usual.crossovers["answer"].tolist()
    assert {*bent.crossovers["to_len"]} == {4096}
    assert {*bent.speedups["seq_len"]} == fastest
