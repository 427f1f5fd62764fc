"""Cases as values: their labels, their keys, and what counts of a workload."""

from dataclasses import replace

import pytest
from hypothesis import given

from attnbench.records import Case, Level, Mode, Shell, Workload, canonical
from tests.cases import CASES

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


@given(CASES, CASES)
def test_other_cases_have_other_keys(one, other):
    assert (one.key == other.key) == (repr(one) == repr(other)), "1 and true are options apart"


def test_equal_data_is_equal_text_in_whatever_order_it_was_made():
    assert canonical({"b": (1, None), "a": "é"}) == '{"a":"é","b":[1,null]}'
    assert canonical({"a": "é", "b": [1, None]}) == canonical({"b": (1, None), "a": "é"})


@pytest.mark.parametrize(
    ("mode", "step", "outputs"), [("inference", 1, 1024), ("training", 1, 1024), ("decode", 3, 24)]
)
def test_a_step_has_outputs_for_its_own_tokens_alone(mode, step, outputs):
    workload = replace(PLAIN, mode=Mode(mode), step=step)
    assert workload.outputs == outputs
    assert workload.tokens == 1024


@given(CASES)
def test_the_slice_of_a_case_is_one_short_sequence_of_the_same_series(case):
    short = case.slice
    w = short.workload
    assert short.series == case.series
    assert (w.batch, w.padding, w.level, w.shell) == (1, 0.0, Level.ATTENTION, None)
    assert w.seq_len == min(case.workload.seq_len, 128)
    assert (w.width, w.heads, w.causal) == tuple(
        getattr(case.workload, name) for name in ("width", "heads", "causal")
    )
