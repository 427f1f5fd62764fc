"""The first times of a block, and how much slower than the fastest each series is."""

import math
from dataclasses import replace

import pytest

from attnbench.analysis.visits import BlockResults, timed
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


def uneven(name, took, rounds):
    """The runs of a series whose rounds differ by a per cent."""
    return tuple(
        Run(
            case=f"{name}",
            part=Part.TIME,
            round=r,
            outcome=Outcome.OK,
            samples=tuple(
                Sample(1, s := took * (1 + 0.01 * ((r + len(name)) % 2)), s, None, s, 0, 0, lap)
                for lap in range(4)
            ),
        )
        for r in range(rounds)
    )


def test_a_comparison_is_told_once_when_its_interval_excludes_a_tenth_either_way():
    results = BlockResults({}, None)

    def told(rounds):
        took = {"a": 0.1, "ab": 0.102, "abc": 0.2}
        runs = {name: uneven(name, s, rounds) for name, s in took.items()}
        return {(one.fast, one.slow): one for one in results.decided(BLOCK, runs)}

    assert told(1) == {}, "a single round has no interval"
    decided = {pair: one for rounds in range(2, 6) for pair, one in told(rounds).items()}
    assert decided.keys() == {("a", "abc"), ("ab", "abc")}, "what ties is not decided"
    first = decided["a", "abc"]
    assert 1.1 < first.low < 2.0 < first.high < 2.3
    assert told(6) == {}, "each is told once"


def test_two_rounds_of_two_series_decide_nothing_and_three_do():
    """Two rounds may agree by chance; three series in two rounds have a common variance."""

    def told(rounds, names):
        took = {"a": 0.1, "abc": 0.2, "abcde": 0.4}
        runs = {name: uneven(name, took[name], rounds) for name in names}
        return len(BlockResults({}, None).decided(BLOCK, runs))

    assert [told(rounds, ["a", "abc"]) for rounds in (2, 3)] == [0, 1]
    assert [told(rounds, ["a", "abc", "abcde"]) for rounds in (2, 3)] == [3, 3]


def test_what_a_comparison_of_stacks_says_is_of_a_layer():
    results = BlockResults({"abc": 4}, None)
    runs = {"a": uneven("a", 0.1, 4), "abc": uneven("abc", 0.2, 4)}
    (decided,) = results.decided(BLOCK, runs)
    assert (decided.fast, decided.slow) == ("abc", "a")
    assert (decided.low, decided.high) == pytest.approx((2.0, 2.0), rel=0.05)


@pytest.mark.parametrize("note", ["suspect", "launches"])
def test_what_is_not_ranked_is_not_compared(note):
    odd = tuple(replace(run, notes={note: "yes"}) for run in uneven("a", 0.1, 4))
    assert BlockResults({}, None).decided(BLOCK, {"a": odd, "abc": uneven("abc", 0.2, 4)}) == []


def test_what_was_suspect_in_another_block_is_neither_told_nor_compared():
    """As in the report, which ranks no case of such a series."""
    results = BlockResults({}, None)
    shorter = BLOCK._replace(seq_len=128)
    odd = (replace(run("fast"), notes={"suspect": "ignored tokens of its input"}),)
    results.first_times(shorter, ["fast"], {"fast": odd})
    here = {"fast": (run("fast"),), "slow": (run("slow"),), "middle": (run("middle"),)}
    assert [each.series for each in results.first_times(BLOCK, [*here], here)] == ["middle", "slow"]
    others = {"fast": uneven("a", 0.1, 4), "abc": uneven("abc", 0.2, 4)}
    assert results.decided(BLOCK, others) == []
    assert len(BlockResults({}, None).decided(BLOCK, others)) == 1
