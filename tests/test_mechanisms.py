"""The contract for the whole registry: every mechanism × form × full or causal, from its card."""

import re
from dataclasses import FrozenInstanceError, fields, replace
from fnmatch import fnmatch
from functools import partial
from inspect import getsourcelines
from itertools import product
from unittest.mock import patch

import pytest

from attnbench.attention.card import Tolerance
from attnbench.attention.checks import equations
from attnbench.attention.checks.checks import (
    checks,
    declared_flops_of_a_step_are_those_that_torch_counts,
    name_of,
    steps_continue_the_causal_pass,
)
from attnbench.attention.checks.equations import (
    NUMBER_TYPES,
    against_its_reference,
    computes_its_own_equations,
)
from attnbench.attention.checks.trial import causal_values, trials, workload
from attnbench.mechanisms.catalogue import registry
from attnbench.mechanisms.catalogue.compiled import FORM
from attnbench.records import Causality
from tests.exemptions import EXEMPT, REFUSED, WIDER

STEPS = steps_continue_the_causal_pass, declared_flops_of_a_step_are_those_that_torch_counts


BY_TYPE = (computes_its_own_equations, steps_continue_the_causal_pass)


def by_default(trial):
    """Whether the form is the default one, and causal if it can be."""
    card = trial.card
    default = card.default_form(trial.config, trial.workload(17))
    return (trial.form, trial.causal) == (default, causal_values(card.causality)[-1])


def usual(trial):
    """Whether all checks of a trial are usual tests: of the first example, those of the default
    form, and of `eager` where it is full and may be causal."""
    full = trial.card.causality is Causality.OPTIONAL and not trial.causal
    first = trial.config == trial.card.examples[0]
    return first and (by_default(trial) or (full and trial.form == "eager"))


TRIALS = [
    pytest.param(trial, id=f"{name}-{label}", marks=() if usual(trial) else pytest.mark.long)
    for name in registry.names()
    for label, trial in trials(registry.card(name))
]
# the first example in every form and causality, and further ones by default
FURTHER = [
    pytest.param(trial, id=param.id)
    for param in TRIALS
    for trial in param.values
    if param.marks and (trial.config == trial.card.examples[0] or by_default(trial))
]


@pytest.fixture(scope="module", autouse=True)
def references_once():
    """What a reference gives for equal parameters, tokens and draws is computed for one form."""
    computed = equations.by_reference
    card = None
    known = {}

    def by_reference(trial, module, w, mask, draws):
        nonlocal card
        state = [t.tolist() for t in module.state_dict().values()]
        drawn = [{name: t.tolist() for name, t in sequence.items()} for sequence in draws]
        masked = None if mask is None else mask.tolist()
        key = repr((trial.config, trial.causal, w.seq_len, masked, state, drawn))
        if card is not trial.card:
            known.clear()
            card = trial.card
        if key not in known:
            known[key] = computed(trial, module, w, mask, draws)
        return known[key]

    with patch.object(equations, "by_reference", by_reference):
        yield


@pytest.mark.parametrize("trial", TRIALS)
def test_the_contract(trial):
    """All checks of a trial; of further examples, in float64 and float32 alone."""
    failures = []
    for check, exempt in checks(trial).items():
        further = check in BY_TYPE and trial.config != trial.card.examples[0]
        run = partial(check, types=NUMBER_TYPES[:2]) if further else check
        try:
            if exempt is None:
                run(trial)
        except Exception as error:
            error.add_note(f"in the check: {name_of(check)}")
            failures.append(error)
    if failures:
        raise ExceptionGroup("; ".join(f"{f.__notes__[0]}: {f}" for f in failures), failures)


@pytest.mark.parametrize("trial", FURTHER)
def test_every_other_trial_computes_its_equations(trial):
    """In float64 at one length; all its checks are long."""
    if trial.card.reference:
        against_its_reference(trial, 23, True, NUMBER_TYPES[:1])


@pytest.mark.faults
@pytest.mark.parametrize("trial", TRIALS)
def test_the_contract_in_every_number_type(trial):
    for check in BY_TYPE:
        if checks(trial)[check] is None:
            check(trial)


@pytest.mark.parametrize("name", registry.names())
def test_a_card_claims_exactly_the_exemptions_of_the_table(name):
    listed, claimed = set(), set()
    for label, trial in trials(registry.card(name)):
        for check, reason in checks(trial).items():
            if check in STEPS or reason == "not causal":
                continue
            if reason:
                claimed.add((name_of(check), label))
            for rules, labels in EXEMPT.get(name, {}).items():
                if name_of(check) in rules and fnmatch(label, labels):
                    listed.add((name_of(check), label))
    assert claimed == listed
    assert registry.card(name).tolerance == WIDER.get(name, Tolerance())


def test_every_wider_tolerance_has_a_reason_and_every_row_a_mechanism():
    assert all(tolerance.reason for tolerance in WIDER.values())
    assert {*EXEMPT, *WIDER, *REFUSED} <= {*registry.names()}


@pytest.mark.parametrize("name", registry.names())
def test_each_example_is_tried_in_each_causality_that_the_table_does_not_refuse(name):
    card = registry.card(name)
    tried = {(card.examples.index(trial.config), trial.causal) for _, trial in trials(card)}
    required = set(product(range(len(card.examples)), causal_values(card.causality)))
    assert required - tried == REFUSED.get(name, {}).keys()
    assert tried


@pytest.mark.parametrize("name", registry.names())
def test_planning_for_a_gpu_needs_none(name):
    """A cluster's login node plans what its nodes run."""
    card = registry.card(name)
    w = replace(workload(17, 2, card.causality is Causality.ALWAYS), seq_len=1000, device="cuda")
    for form, config in product(card.own_forms, card.examples):
        card.forms[form].elements(config, w)
        if card.needs is None or card.needs(config, w) is None:
            card.forms[form].flops(config, w)


@pytest.mark.parametrize("name", registry.names())
def test_the_file_explains_itself(name):
    card = registry.card(name)
    module = card.forms["eager"]
    text = __import__(module.__module__, fromlist=["x"]).__doc__
    assert f"Source: {card.paper.source}" in text, "the docstring names the card's source"
    assert re.search(r"\[B, (H, )?N", text), "the docstring has shapes"
    assert module.__name__.lower() == name.replace("_", ""), "class and file have one name"
    others = [card.forms[form] for form in card.own_forms if form not in ("eager", FORM)]
    below = [getsourcelines(form)[1] for form in others]
    assert all(getsourcelines(card.reference)[1] < line for line in below), "the reference is first"
    assert card.config.__doc__
    for option in fields(card.config):
        documented = f"`{option.name}`" in card.config.__doc__ or option.name == "bias"
        assert documented, f"{option.name} is not explained"
    with pytest.raises(FrozenInstanceError):
        card.config().bias = True
    assert card.forms[card.default_form(card.config(), workload(17, 2, False))] is not None
    for example in card.examples:
        assert isinstance(example, card.config)
