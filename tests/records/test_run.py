"""A run and its samples: the time that counts, and where it was measured."""

import pytest

from attnbench.records import AWAY, Clock, Origin, Sample, Shard


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({"clock": Clock.WALL}, 0.5),
        ({}, 0.2),
        ({"waited_s": 0.6}, 0.2),
        ({"waited_s": 0.6 - AWAY + 0.001}, 0.2),
        ({"waited_s": 0.6 - AWAY - 0.001}, 0.2 + AWAY / 2),
        ({"waited_s": 0.0}, 0.5),
        ({"waited_s": 0.0, "cpu_s": 1.9}, 0.95),
        ({"waited_s": 1.0, "cpu_s": 0.0}, 0.5),
        ({"cpu_s": 0.0}, 0.5),
        ({"device_s": 0.3}, 0.15),
    ],
)
def test_the_seconds_of_a_sample_are_those_of_its_clock_that_can_be_believed(changes, seconds):
    """Two iterations in 1 s, of which 0.4 s are CPU time."""
    sample = Sample(2, 1.0, 0.4, None, 0.4, 0.0, 0.0, clock=Clock.CPU)._replace(**changes)
    assert sample.seconds == pytest.approx(seconds, rel=0.01)


def test_a_process_was_away_for_what_it_neither_computed_nor_waited():
    sample = Sample(2, 1.0, 0.4, None, 0.4, 0.0, 0.0)
    assert sample.away_s == 0.0, "unknown"
    assert sample._replace(waited_s=0.25).away_s == pytest.approx(0.35)
    assert sample._replace(waited_s=0.9).away_s == 0.0


def test_wall_time_is_that_of_one_iteration_without_holds():
    sample = Sample(4, 1.0, 0.4, 0.8, 0.4, 0.0, 0.0)
    assert sample.unheld_wall_s == 0.25
    assert sample._replace(unheld_s=0.1).unheld_wall_s == 0.1


def test_a_node_is_a_host_with_its_gpu():
    assert Origin(host="a", device_uuid="GPU-1").node == "a GPU-1"
    assert Origin(host="a").node == "a"
    assert Origin().node == ""


def test_shards_are_ordered_by_number_and_printed_as_they_are_asked_for():
    shards = [Shard(10, 12), Shard(2, 12)]
    assert [*map(str, sorted(shards))] == ["2/12", "10/12"]
