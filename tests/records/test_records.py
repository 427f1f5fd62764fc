"""What the shared nouns promise: labels, and the time that counts."""

from dataclasses import replace

import pytest

from attnbench.records import AWAY, Case, Clock, Level, Sample, Shell, Workload

PLAIN = Workload(batch=8, seq_len=128, level=Level.ATTENTION)


@pytest.mark.parametrize(
    ("workload", "label"),
    [
        (replace(PLAIN, padding=0.3), "m:eager/B8-N128-D256-H16/attention/inference/float32/cpu"
                                      "/padding=0.3"),
        (replace(PLAIN, level=Level.MODEL, causal=True, shell=Shell(layers=4, classes=3)),
         "m:eager/B8-N128-D256-H16/model/inference/float32/cpu/causal/layers=4/classes=3"),
    ],
)  # fmt: skip
def test_a_label_says_what_is_not_usual(workload, label):
    case = Case(mechanism="m", form="eager", workload=workload)
    assert str(case) == label


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
