"""The contract over the registry: every mechanism × form × full or causal, from its card alone."""

import re
from dataclasses import FrozenInstanceError, fields
from fnmatch import fnmatch
from itertools import product

import pytest

from attnbench.contract import Tolerance
from attnbench.records import Causality
from attnbench.registry import card, names
from attnbench.verify.checks import CHECKS, no_core, no_other_form, not_causal
from attnbench.verify.trial import trials, ways, workload
from tests.exemptions import EXEMPT, REFUSED, WIDER


def every(name):
    """Each check and each trial that it speaks of: causal ones, or forms beside `eager`."""
    for label, trial in trials(card(name)):
        for check in CHECKS:
            reason = check.exemption(trial)
            if reason is None or reason not in (not_causal(trial), no_other_form(trial)):
                yield label, check, trial


@pytest.mark.parametrize(
    ("check", "trial"),
    [
        pytest.param(check, trial, id=f"{name}-{label}-{check.name.replace(' ', '_')}")
        for name in names()
        for label, check, trial in every(name)
        if check.exemption(trial) is None or check.exemption(trial) != no_core(trial)
    ],
)
def test_the_contract(check, trial):
    if reason := check.exemption(trial):
        pytest.skip(reason)
    check.run(trial)


@pytest.mark.parametrize("name", names())
def test_a_card_claims_the_exemptions_of_the_table_and_no_other(name):
    rows = EXEMPT.get(name, ())
    listed, claimed = set(), set()
    for label, check, trial in every(name):
        if reason := check.exemption(trial):
            claimed.add((check.name, label, reason))
        listed |= {
            (check.name, label, reason)
            for checks, reason, labels in rows
            if check.name in checks and fnmatch(label, labels)
        }
    assert claimed == listed
    assert card(name).tolerance == WIDER.get(name, Tolerance())


def test_every_wider_tolerance_has_a_reason_and_every_row_a_mechanism():
    assert all(tolerance.reason for tolerance in WIDER.values())
    assert {*EXEMPT, *WIDER, *REFUSED} <= {*names()}


@pytest.mark.parametrize("name", names())
def test_each_example_is_tried_in_each_causality_that_the_table_does_not_refuse(name):
    its = card(name)
    tried = {(its.examples.index(trial.config), trial.causal) for _, trial in trials(its)}
    asked = set(product(range(len(its.examples)), ways(its.causality)))
    assert asked - tried == REFUSED.get(name, {}).keys()
    assert tried


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
