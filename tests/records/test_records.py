"""What the shared nouns promise: a label reads back, machines say how they differ."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from attnbench.records import AWAY, Case, Clock, Level, Sample, Shell, Workload
from tests.cases import CASES

PLAIN = Workload(batch=8, seq_len=128, level=Level.ATTENTION)


@given(CASES)
@example(
    Case(
        mechanism="m",
        form="f",
        options=(("a", "true"), ("b", "7"), ("c", "None"), ("d", "0.5")),
        workload=PLAIN,
    )
)
def test_a_label_reads_back_as_its_case(case):
    found = Case.read(str(case))
    assert found == case
    assert found.key == case.key  # 1 and 1.0 and True are equal, and no option is another


@pytest.mark.parametrize(
    ("workload", "label"),
    [
        (replace(PLAIN, padding=0.3), "m:eager/B8-N128-D256-H16/attention/inference/float32/cpu"
                                      "/padding=0.3"),
        (replace(PLAIN, level=Level.MODEL, causal=True, shell=Shell(layers=4, reversible=True)),
         "m:eager/B8-N128-D256-H16/model/inference/float32/cpu/causal/layers=4/reversible=True"),
    ],
)  # fmt: skip
def test_a_label_says_what_is_not_usual(workload, label):
    case = Case(mechanism="m", form="eager", workload=workload)
    assert str(case) == label
    assert Case.read(label) == case


@given(CASES, st.data())
@example(Case(mechanism="m", form="f", workload=PLAIN), None)
def test_a_damaged_label_is_refused_or_that_of_another_case(case, data):
    label = str(case)
    at = data.draw(st.integers(0, len(label) - 1)) if data else 0
    damaged = label[:at] + label[at + 1 :]
    with suppress(ValueError):
        found = Case.read(damaged)
        assert Case.read(str(found)) == found


def test_text_that_no_quotes_were_put_around_reads_back():
    """As earlier versions wrote it."""
    label = 'm:f[x=../a b,y=1,z="]/B8-N128-D256-H16/attention/inference/float32/cpu'
    assert Case.read(label).options == (("x", "../a b"), ("y", 1), ("z", '"'))


@pytest.mark.parametrize(
    "label",
    [
        "",
        "x",
        "m:f/B8-N128-D256-H16/attention/inference/float32",
        "m:f/B8-N128-D256-H16/attention/inference/float32/cpu/layers=4",
        "m:f/B8-N128-D256-H16/attention/inference/float32/cpu/width=4",
        "m:f/B8-N128-D256-H16/attention/inference/float32/cpu/padding=2.0",
        "m:f/B8-N128-D256-H16/attention/asleep/float32/cpu",
        "m:f/B0-N128-D256-H16/attention/inference/float32/cpu",
        "m:f/B" + "9" * 5000 + "-N128-D256-H16/attention/inference/float32/cpu",
    ],
)
def test_what_no_case_prints_as_is_refused(label):
    with pytest.raises(ValueError, match=r"does not read as a case|does$"):
        Case.read(label)


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
