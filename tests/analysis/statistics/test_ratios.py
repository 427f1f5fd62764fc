"""Ratios from laps run in turns: how they are computed, and what uses them."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from attnbench.analysis.concluding import direction
from attnbench.analysis.conclusions import Answer, Scope
from attnbench.analysis.scaling import pairs, speedups
from attnbench.analysis.statistics.ratios import Ratios
from attnbench.analysis.summary import summary
from attnbench.records import Case, Mode, Outcome, Part, Sample, Sweep
from tests import sweeps

A, B, C = (f"{name}:eager" for name in ("fastformer", "linformer", "bigbird"))
BASE = {mode: [A] for mode in Mode}
FACTORS = {"fastformer": 1.0, "linformer": 1.5, "bigbird": 4.0}
LENGTHS = (256, 512, 1024)
LAPS = range(6)


def sweep(laps=None, *, rounds: int = 3) -> Sweep:
    """Three series; `laps(case, round)` gives seconds by lap."""
    plain = sweeps.sweep(FACTORS, lengths=LENGTHS, modes=(Mode.INFERENCE,), rounds=rounds)
    return sweeps.raced(plain, laps) if laps else plain


def steady(case: Case, round: int) -> Mapping[int, float]:
    """The time of every lap is the factor of the mechanism."""
    return dict.fromkeys(LAPS, FACTORS[case.mechanism])


def drifting(case: Case, round: int) -> Mapping[int, float]:
    """The machine is up to three times slower in later laps, rounds and longer blocks."""
    slower = {lap: 1.2 ** (lap // 2) * 1.3**round * case.workload.seq_len for lap in LAPS}
    return {lap: FACTORS[case.mechanism] * factor for lap, factor in slower.items()}


def uneven(case: Case, round: int) -> Mapping[int, float]:
    """The machine drifts as above, and each process of a round deviates a little."""
    off = {"fastformer": (0.01, -0.01, 0.0), "linformer": (0.0, 0.02, -0.01)}
    by = math.exp(off.get(case.mechanism, (0.01, 0.0, -0.02))[round % 3])
    return {lap: by * seconds for lap, seconds in drifting(case, round).items()}


def log(found: Ratios, one: str, other: str) -> float | None:
    ratio = found.ratio(one, other, Mode.INFERENCE, 512)
    return None if ratio is None else ratio.log


def without(whole: Sweep, mechanism: str, seq_len: int, **changes) -> Sweep:
    """The sweep with other fields in the timed runs of one case."""
    (key,) = (
        p.case.key
        for p in whole.plan
        if (p.case.mechanism, p.case.workload.seq_len) == (mechanism, seq_len)
    )
    runs = (
        replace(run, **changes) if run.case == key and run.part is Part.TIME else run
        for run in whole.runs
    )
    return replace(whole, runs=tuple(runs))


def test_a_ratio_is_positive_where_the_first_series_takes_longer():
    """Reversed it has the opposite sign and the same error, after one round none."""
    for laps, rounds in ((steady, 1), (uneven, 3)):
        found = Ratios(sweep(laps, rounds=rounds))
        one, other = (found.ratio(*pair, "inference", 512) for pair in ((A, C), (C, A)))
        assert one.log == -other.log == pytest.approx(-math.log(4), abs=0.1 * (rounds > 1))
        assert one.se > 0 if rounds > 1 else math.isnan(one.se)
        assert (one.se, one.df) == pytest.approx((other.se, other.df), nan_ok=True)


@pytest.mark.parametrize(
    ("rounds", "changes"), [(1, {"round": 1}), (3, {"outcome": Outcome.CRASHED})]
)
def test_what_ran_in_other_rounds_or_failed_has_no_ratio_and_its_block_keeps_the_others(
    rounds, changes
):
    found = Ratios(without(sweep(steady, rounds=rounds), "linformer", 512, **changes))
    assert log(found, B, A) is None
    assert log(found, C, A) == pytest.approx(math.log(4))
    assert found.ratio(B, A, Mode.INFERENCE, 1024) is not None


def test_drift_that_all_series_share_affects_no_ratio():
    found = Ratios(sweep(drifting)).ratio(B, A, Mode.INFERENCE, 512)
    assert found.log == pytest.approx(math.log(1.5))
    assert found.se == pytest.approx(0, abs=1e-12)


def test_the_error_of_a_ratio_is_that_of_the_mean_of_its_rounds():
    """Log ratios of 0.1, 0.2 and 0.3 deviate by 0.1, with two degrees of freedom."""

    def laps(case: Case, round: int) -> Mapping[int, float]:
        slower = math.exp(0.1 * (round + 1)) if case.mechanism == "linformer" else 1.0
        return dict.fromkeys(LAPS, slower)

    plain = sweeps.sweep(
        ("fastformer", "linformer"), lengths=(512,), modes=(Mode.INFERENCE,), rounds=3
    )
    found = Ratios(sweeps.raced(plain, laps)).ratio(B, A, Mode.INFERENCE, 512)
    assert found == pytest.approx((0.2, 0.1 / math.sqrt(3), 2))


def test_only_complete_pairs_of_laps_of_both_series_are_compared():
    def laps(case: Case, round: int) -> Mapping[int, float]:
        # the machine is ten times slower in the laps that linformer lacks
        found = {lap: FACTORS[case.mechanism] * (10 if lap > 1 else 1) for lap in LAPS}
        return {lap: found[lap] for lap in (0, 1, 2)} if case.mechanism == "linformer" else found

    assert log(Ratios(sweep(laps)), B, A) == pytest.approx(math.log(1.5))


def test_one_slow_pair_of_laps_in_three_does_not_move_the_ratio():
    def laps(case: Case, round: int) -> Mapping[int, float]:
        slow = case.mechanism == "fastformer"
        return {lap: s * (5 if slow and lap == 3 else 1) for lap, s in steady(case, round).items()}

    assert log(Ratios(sweep(laps)), B, A) == pytest.approx(math.log(1.5))


def test_series_of_different_groups_are_linked_to_the_anchor_alone():
    numbers = {"fastformer": range(4), "linformer": range(2), "bigbird": range(2, 4)}

    def laps(case: Case, round: int) -> Mapping[int, float]:
        return dict.fromkeys(numbers[case.mechanism], FACTORS[case.mechanism])

    found = Ratios(sweep(laps))
    assert log(found, B, A) == pytest.approx(math.log(1.5))
    assert log(found, C, A) == pytest.approx(math.log(4))
    assert log(found, C, B) is None


def test_a_series_has_no_ratio_to_itself_or_to_a_missing_series():
    found = Ratios(sweep(steady))
    assert found.ratio(A, A, Mode.INFERENCE, 512) is None
    assert found.ratio(A, "reformer:eager", Mode.INFERENCE, 512) is None
    assert found.ratio(A, B, Mode.TRAINING, 512) is None
    assert found.ratio(A, B, Mode.INFERENCE, 640) is None


def test_samples_without_laps_give_no_ratio_and_unpaired_speedups():
    plain = sweep()
    cases, ratios = summary(plain), Ratios(plain)
    assert log(ratios, A, B) is None
    found = speedups(cases, BASE, ratios)
    assert len(found)
    assert not found["paired"].any()
    assert found.equals(speedups(cases, BASE))


def test_speedups_use_the_paired_ratios():
    whole = sweep(uneven)
    cases = summary(whole)
    found, apart = (speedups(cases, BASE, ratios) for ratios in (Ratios(whole), None))
    assert found["paired"].all()
    assert not apart["paired"].any()
    # the machine's drift between rounds is in the independent intervals alone
    assert (found["high"] / found["low"] < 1.2).all()
    assert (apart["high"] / apart["low"] > 1.5).all()


def test_a_speedup_is_unpaired_at_the_length_without_a_paired_ratio():
    whole = sweep(steady)
    single = tuple(Sample(1, 2.0, 2.0, None, 2.0, 0.0, 0.0) for _ in LAPS)
    whole = without(whole, "linformer", 512, samples=single)
    found = speedups(summary(whole), BASE, Ratios(whole))
    apart = found[~found["paired"]]
    assert [tuple(row) for row in apart[["series", "seq_len"]].to_numpy()] == [(B, 512)]
    assert apart["ratio"].item() == pytest.approx(1 / 2)


def test_a_crossover_that_drift_hides_is_found_by_paired_ratios():
    def laps(case: Case, round: int) -> Mapping[int, float]:
        shorter = case.mechanism == "linformer" and case.workload.seq_len == 256
        return {lap: s / (3 if shorter else 1) for lap, s in drifting(case, round).items()}

    whole = sweep(laps)

    def answer(ratios: Ratios | None) -> Answer:
        curves = {(one.a, one.b): one.curve for one in pairs(summary(whole), ratios)}
        return direction(curves[A, B], Scope(lengths=LENGTHS, of_sweep=LENGTHS))[0]

    assert answer(Ratios(whole)) is Answer.FROM
    assert answer(None) is Answer.NOT_KNOWN
