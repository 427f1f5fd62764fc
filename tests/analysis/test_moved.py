import pytest

from attnbench.analysis.compare import moved_crossovers
from attnbench.analysis.report import analyse
from attnbench.errors import UnknownMechanism
from attnbench.records import Mode, Sweep
from tests.sweeps import LENGTHS, changed, sweep

PAIR = ("longformer", "transformer")


def whole(seed: int = 0, **changes):
    return sweep(PAIR, seed=seed, modes=(Mode.INFERENCE,), restart=0.01, **changes)


def moved(first: Sweep, second: Sweep):
    return moved_crossovers(analyse(first), analyse(second))


def test_a_crossover_that_moved_is_found_once_with_both_lengths():
    # 4 µs a token against 1.6 µs + 1.5 ns · N: at N = 1600, and at 4267 with twice the slope
    found = moved(whole(1), changed(whole(2), "longformer", 2.0))
    (row,) = [found.loc[i] for i in found.index]
    assert (row["series"], row["other"]) == ("longformer:eager", "transformer:eager")
    assert row["low_1"] < 1600 < row["high_1"]
    assert row["low_2"] < 4267 < row["high_2"]


def test_a_crossover_that_left_the_sweep_moved():
    found = moved(whole(1), changed(whole(2), "longformer", 0.1))
    assert list(found["answer_2"]) == ["always"]


def test_noise_moves_no_crossover():
    found = [len(moved(whole(seed), whole(seed + 100))) for seed in range(10)]
    assert sum(found) == 0


def test_one_round_moves_no_crossover():
    assert moved(whole(1, rounds=1), changed(whole(2), "longformer", 2.0)).empty
    assert moved(whole(1), changed(whole(2, rounds=1), "longformer", 2.0)).empty


def test_a_longer_sweep_moves_nothing():
    assert moved(whole(1, lengths=LENGTHS[:6]), whole(2)).empty
    assert moved(whole(1, lengths=LENGTHS[:2]), whole(2, lengths=LENGTHS[4:])).empty


def test_a_series_is_selected_by_its_name_or_its_mechanism():
    for name in ("transformer", "transformer:eager"):
        assert analyse(whole(), name).against == "transformer:eager"
    with pytest.raises(UnknownMechanism, match=r"no mechanism 'x' .* longformer, transformer"):
        analyse(whole(), "x")
