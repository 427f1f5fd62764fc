"""The contract over the registry: every mechanism × form × full or causal, from its card alone."""

import re
from contextlib import suppress
from dataclasses import FrozenInstanceError, fields

import pytest

from attnbench.measure.trial import NotApplicable, trials, workload
from attnbench.measure.verify import CHECKS
from attnbench.records import Causality
from attnbench.registry import card, names


def every():
    """A check on each trial of the whole registry."""
    for name in names():
        for label, trial in trials(card(name)):
            for check in CHECKS:
                yield pytest.param(check, trial, id=f"{name}-{label}-{check.__name__}")


@pytest.mark.parametrize(("check", "trial"), list(every()))
def test_the_contract(check, trial):
    with suppress(NotApplicable):
        check(trial)


@pytest.mark.parametrize(
    ("name", "form"), [(name, form) for name in names() for form in card(name).forms]
)
def test_every_form_runs_here_or_says_why(name, form):
    its = card(name)
    causal = its.causality is Causality.ALWAYS
    reasons = [its.refusal(form, config, workload(17, 2, causal)) for config in its.examples]
    if None not in reasons:
        pytest.skip(reasons[0])


@pytest.mark.parametrize("name", names())
def test_the_file_explains_itself(name):
    its = card(name)
    module = its.forms["eager"]
    text = __import__(module.__module__, fromlist=["x"]).__doc__
    assert f"Source: {its.paper.source}" in text, "the docstring names the card's source"
    assert re.search(r"\[B, (H, )?N", text), "the docstring has shapes"
    assert module.__name__.lower() == name.replace("_", ""), "class and file have one name"
    assert its.config.__doc__
    for option in fields(its.config):
        documented = f"`{option.name}`" in its.config.__doc__ or option.name == "bias"
        assert documented, f"{option.name} is not explained"
    with pytest.raises(FrozenInstanceError):
        its.config().bias = True
    assert its.forms[its.default(its.config(), workload(17, 2, False))] is not None
    for example in its.examples:
        assert isinstance(example, its.config)
