"""Small examples of a mechanism, repeatable and without zeros."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.attention.checks.trial import (
    NotApplicable,
    Trial,
    causal_values,
    in_dtype,
    masks,
    same_draws,
    some_padding,
    tokens,
    trials,
    without_gradient,
    workload,
)
from attnbench.mechanisms.catalogue import registry
from attnbench.mechanisms.transformer import CARD
from attnbench.records import Causality
from tests.attention.checks.defects import Biased, Detached, Residual

TRIAL = Trial(CARD, CARD.config(bias=True), "eager", causal=False)
DTYPES = (torch.float64, torch.float32, torch.bfloat16)


def test_every_form_that_runs_here_is_tried_in_every_example_and_mode():
    labels = [label for label, _ in trials(CARD)]
    assert labels[:4] == ["0-eager", "0-sdpa", "0-eager-causal", "0-sdpa-causal"]
    assert len(labels) == len({*labels}) == 4 * len(CARD.examples)
    assert {trial.form for _, trial in trials(registry.card("local"))} >= {"eager"}
    assert not any(trial.card.forms[trial.form].compiles for _, trial in trials(CARD))


@pytest.mark.parametrize(
    ("causality", "found"),
    [
        (Causality.ALWAYS, (True,)),
        (Causality.OPTIONAL, (False, True)),
        (Causality.NEVER, (False,)),
        (Causality.TESTED, (False,)),
    ],
)
def test_modes_follow_from_causality(causality, found):
    assert causal_values(causality) == found


def test_parameters_and_tokens_are_the_same_in_every_number_type_and_none_is_zero():
    card = replace(CARD, forms={"eager": Residual})
    trial = replace(TRIAL, card=card)
    built = [trial.build(trial.workload(9), dtype) for dtype in DTYPES]
    for parameters in zip(*(module.parameters() for module in built), strict=True):
        assert [p.dtype for p in parameters] == [*DTYPES]
        assert parameters[0].any()
        assert all(torch.equal(p.double(), parameters[0]) for p in parameters)
    xs = [tokens(trial.workload(9), dtype=dtype) for dtype in DTYPES]
    assert all(torch.equal(x.double(), xs[0]) for x in xs)
    assert not torch.equal(xs[0], tokens(trial.workload(9), seed=2))


def test_a_form_that_refuses_a_workload_is_not_applicable():
    fnet = registry.card("fnet")
    with pytest.raises(NotApplicable, match="no causal form"):
        Trial(fnet, fnet.config(), "eager", causal=True).build(workload(9, 2, causal=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tolerance_is_that_of_the_number_type(dtype):
    name = str(dtype).removeprefix("torch.")
    assert TRIAL.allowed(dtype) == getattr(CARD.tolerance, name)
    assert in_dtype(TRIAL.workload(9), dtype).dtype == name


@given(st.integers(1, 9), st.integers(1, 40))
def test_of_three_sequences_one_is_whole_and_one_begins_and_one_ends_with_padding_as_one_alone(
    batch, seq_len
):
    w = workload(seq_len, batch, causal=False)
    third = seq_len // 3
    lengths = some_padding(w).sum(1).tolist()
    assert lengths == [seq_len, *([seq_len - third] * (batch - 1))]
    mask = masks(w)
    for index, row in enumerate(mask.tolist()):
        padded = [place for place, real in enumerate(row) if not real]
        whole, ends, begins = (), range(seq_len - third, seq_len), range(third)
        expected = ends if batch == 1 else (whole, ends, begins)[index % 3]
        assert padded == [*expected]


def test_random_numbers_come_again_whoever_drew_before():
    first = same_draws(torch.rand, 3)
    torch.rand(7)
    assert torch.equal(same_draws(torch.rand, 3), first)


def test_what_no_gradient_reaches_is_named():
    assert without_gradient(TRIAL) == []
    for form, found in ((Detached, ["key.weight", "key.bias"]), (Biased, ["unused"])):
        trial = replace(TRIAL, card=replace(CARD, forms={"eager": form}))
        assert without_gradient(trial) == found
