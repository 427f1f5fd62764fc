"""The first times of a block, and how much slower than the fastest each series is."""

import math
from dataclasses import replace

import pytest

from attnbench.analysis.visits import timed
from attnbench.records import Block, Outcome, Part, Run, Sample
from attnbench.records.modes import Mode

BLOCK = Block(Mode.TRAINING, 1024, 256, 16, "float32", 8)
SECONDS = {"slow": 0.3, "fast": 0.1, "middle": 0.2}


def run(name, round_=0, first_lap=0):
    laps = range(first_lap, first_lap + 2)
    samples = tuple(Sample(1, s := SECONDS[name], s, None, s, 0, 0, lap) for lap in laps)
    return Run(case=name, part=Part.TIME, round=round_, outcome=Outcome.OK, samples=samples)


def told(*new, block=BLOCK, tokens=None, **runs):
    """What is said of a visit to these series; runs of a series are given where it has others."""
    return timed(block, new, {name: (run(name),) for name in new} | runs, tokens, {})


def test_the_fastest_comes_first_and_times_are_of_the_tokens_of_a_batch():
    found = told("slow", "fast", "middle", tokens=16_384)
    assert [each.series for each in found] == ["fast", "middle", "slow"]
    assert [each.seconds for each in found] == pytest.approx([0.2, 0.4, 0.6])
    assert [math.exp(each.log_ratio) for each in found] == pytest.approx([1, 2, 3])
    assert told("slow")[0].seconds == pytest.approx(0.3)
    step = BLOCK._replace(mode=Mode.DECODE)
    assert told("slow", block=step, tokens=16_384)[0].seconds == pytest.approx(0.3)


def test_the_ratio_is_that_of_the_times_shown():
    """Of each pair of laps the faster one counts; the slower ones are far slower."""

    def uneven(own):
        first, second = own.samples
        return (replace(own, samples=(first, second._replace(wall_s=9.0, cpu_s=9.0))),)

    fast, slow = told("slow", "fast", slow=uneven(run("slow")), fast=uneven(run("fast")))
    assert (fast.seconds, slow.seconds) == pytest.approx((0.1, 0.3))
    assert slow.log_ratio == pytest.approx(math.log(slow.seconds / fast.seconds))


def test_what_is_suspect_is_not_told_and_only_what_took_turns_has_a_ratio():
    suspect = replace(run("fast"), notes={"suspect": "ignored tokens of its input"})
    found = told("fast", "slow", "middle", fast=(suspect,))
    assert [each.series for each in found] == ["middle", "slow"]
    found = told("slow", fast=(run("fast", first_lap=8),))
    assert [(each.series, each.log_ratio) for each in found] == [("fast", 0.0), ("slow", None)]
    launched = replace(run("fast"), notes={"launches": "not hidden"})
    found = told("fast", "slow", "middle", fast=(launched,))
    assert [each.log_ratio for each in found] == [None, 0.0, pytest.approx(math.log(1.5))]


def test_what_was_timed_before_is_not_told_again():
    both = (run("slow"), run("slow", 1))
    assert told("slow", slow=both) == []
    late = told("middle", slow=both, fast=(run("fast"), run("fast", 1)))
    assert [each.series for each in late] == ["fast", "middle"]
