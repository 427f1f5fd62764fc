"""A sweep and its plan: blocks, the depth of stacks, and the shards that are missing."""

from dataclasses import replace

from attnbench.records import Level, Origin, Shard
from tests.sweeps import decoded, sweep

WHOLE = sweep(("fastformer", "transformer"), lengths=(128, 256), rounds=1, samples=1)
LINE = WHOLE.plan[0]


def resized(line, **changes):
    """The line of the plan with another workload."""
    workload = replace(line.case.workload, **changes)
    return replace(line, case=replace(line.case, workload=workload))


def test_cases_of_one_block_differ_in_their_series_alone():
    assert len({line.block for line in WHOLE.plan}) == len(WHOLE.plan) / 2
    for changes in ({"seq_len": 64}, {"width": 8}, {"heads": 1}, {"batch": 1}, {"step": 2}):
        assert resized(LINE, **changes).block != LINE.block
    for changes in ({"dtype": "bfloat16"}, {"mode": "decode"}):
        assert resized(LINE, **changes).block != LINE.block
    assert resized(LINE, padding=0.5).block == LINE.block


def test_a_stack_is_as_deep_as_its_layers_but_in_a_classifier():
    stack = replace(LINE, layers=("a", "b", "a"))
    assert (stack.depth, LINE.depth) == (1, 1), "every classifier has equally many"
    attention = {"level": Level.ATTENTION, "shell": None}
    assert resized(stack, **attention).depth == 3
    assert resized(LINE, **attention).depth == 1


def test_flops_are_those_of_the_forward_pass_without_a_prompt():
    line = replace(LINE, projection_flops=1, core_flops=20, shell_flops=300, prefill_flops=4000)
    assert line.flops == 321


def test_a_journal_of_one_shard_names_it_and_of_several_none():
    assert WHOLE.shard is None
    assert replace(WHOLE, shards=(Shard(2, 3),)).shard == Shard(2, 3)
    assert replace(WHOLE, shards=(Shard(1, 3), Shard(2, 3))).shard is None


def test_missing_shards_are_named_unless_the_sweep_went_on_as_a_whole():
    assert [*WHOLE.missing] == []
    shard = Shard(2, 3)
    runs = tuple(replace(run, origin=Origin(shard=shard)) for run in WHOLE.runs)
    divided = replace(WHOLE, shards=(shard,), runs=runs)
    assert [*divided.missing] == [Shard(1, 3), Shard(3, 3)]
    assert [*replace(divided, runs=(*runs, WHOLE.runs[0])).missing] == []


def test_a_step_is_part_of_the_block():
    (line, *_) = decoded({"transformer": lambda n: n}, lengths=(128,), rounds=1, samples=1).plan
    assert line.block.mode == "decode"
    assert resized(line, step=4).block == line.block._replace(step=4)
