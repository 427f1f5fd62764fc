"""Whether something responds beside noise is decided with the stated certainty, or left open."""

import numpy as np
import pytest
import torch
from scipy.stats import t

from attnbench.measuring.noise import STAGES, Count, Decision, Pairs, Patience

LEVEL = 1e-3  # of wrong decisions, over all stages


class Drawn(Pairs):
    """Changes of 400 numbers by a response and noise, of one common factor or of each number."""

    def __init__(self, response, common, seed):
        super().__init__(None, (), (), torch.arange(400), Patience())
        self.response, self.common = response, common
        self.generator = torch.Generator().manual_seed(seed)

    def repeat(self, count):
        while len(self.changes) < count:
            drawn = torch.randn(1 if self.common else 400, generator=self.generator)
            self.changes.append(self.response + drawn.double().expand(400))


def test_what_is_sure_is_as_student_has_it():
    for pairs, errors in STAGES.items():
        assert errors == pytest.approx(t.ppf(1 - LEVEL / len(STAGES), pairs - 1), abs=0.01)


@pytest.mark.parametrize("common", [False, True])
def test_the_square_of_a_mean_change_is_estimated_without_bias(common):
    points = []
    for seed in range(200):
        pairs = Drawn(0.5, common, seed)
        pairs.repeat(16)
        points.append(pairs.square().point)
    error = np.std(points) / len(points) ** 0.5
    assert abs(np.mean(points) - 100) < 4 * error


@pytest.mark.parametrize("common", [False, True])
@pytest.mark.parametrize(("response", "expected"), [(0.0, Decision.BELOW), (2.0, Decision.ABOVE)])
def test_what_responds_is_told_from_what_does_not(response, expected, common):
    decisions = [
        Drawn(response, common, seed).decide(lambda pairs: pairs.square().decide(40.0, 40.0))
        for seed in range(100)
    ]
    assert decisions == [expected] * 100


def test_what_noise_hides_stays_unknown_once_patience_ends():
    now = iter([0.0, *[100.0] * 9])
    pairs = Drawn(0.05, True, seed=1)
    pairs.patience = Patience(lambda: next(now))
    assert pairs.decide(lambda own: own.square().decide(1.0, 1.0)) is Decision.UNKNOWN
    assert len(pairs.changes) == min(STAGES)


def test_groups_are_a_sign_only_where_enough_of_them_are_silent():
    assert Count(4, 0, 8).is_sign
    assert not Count(3, 5, 8).is_sign
    assert Count(3, 1, 8).may_be_sign
    assert not Count(0, 3, 8).may_be_sign
    assert not Count(0, 0, 0).may_be_sign
