"""The process that reads cards: what mechanisms declare, as plain data.

The code of a user's file or of an installed package runs here and never in the parent: it may
print, hang, raise, exit, or kill the process.
"""

import sys
from dataclasses import asdict, fields, replace
from itertools import product
from typing import Any

import msgspec

from attnbench.attention.card import Card
from attnbench.errors import AttnbenchError, CannotRun, UnknownMechanism, one_line
from attnbench.measuring.planner import facts, plan
from attnbench.mechanisms.catalogue.registry import card
from attnbench.mechanisms.peers import installed
from attnbench.records import PASSES, CardFacts, Level, Outcome, Planned, Workload
from attnbench.records.messages import (
    Describe,
    Described,
    Failure,
    Known,
    Plans,
    ProcessAnswer,
    ReadPlan,
    Verified,
    Verify,
    read_question,
    written,
)


class CardReader:
    """Answers about mechanisms; a failure names the class of its `error` and has its `reason`."""

    conversation: object

    def __init__(self, tree: None, **_: Any) -> None:
        """A reader always reads this package, never another source tree."""

    def answer(self, do: str, **asked: Any) -> dict[str, Any]:
        """What a question in plain data gives, in plain data; an exception becomes a failure."""
        question = read_question({"do": do, **asked})
        try:
            return written(answered(question))
        except AttnbenchError as error:
            return written(failed(type(error), str(error)))
        except (Exception, SystemExit) as error:
            names = " or ".join(map(repr, getattr(question, "names", ())))
            reason = f"{names}: its card fails: {one_line(error)}"
            return written(failed(UnknownMechanism, reason))


def failed(kind: type[AttnbenchError], reason: str) -> Failure:
    """The failure that the parent raises as an error of this kind."""
    return Failure(outcome=Outcome.FAILED, error=kind.__name__, reason=reason)


def answered(question: Known) -> ProcessAnswer:
    """The answer to a question. Raises what cards raise, and `TypeError` for other questions."""
    match question:
        case ReadPlan():
            return planned(question)
        case Describe(names=names, device=device):
            return Described(described=tuple(describe(name, card(name), device) for name in names))
        case Verify():
            return verified(question)
    raise TypeError(f"a reader of cards does not answer {type(question).__name__}")


def planned(question: ReadPlan) -> Plans:
    """The cases of each selection, and what a report needs of each mechanism.

    Raises `CannotRun` if numbers of cases are beyond any machine.
    """
    plans = []
    for selection in question.selections:
        cases = [asdict(case) for case in plan(selection, question.request)]
        try:
            plans.append(msgspec.convert(cases, tuple[Planned, ...]))
        except ValueError as error:
            wrong = f"{selection} cannot be planned: {error}; ask for smaller sizes"
            raise CannotRun(wrong) from error
    cards = (msgspec.convert(asdict(facts(name)), CardFacts) for name in question.names)
    return Plans(plan=tuple(plans), cards=tuple(cards))


def verified(question: Verify) -> Verified:
    """The results of the contract's checks on a mechanism, and if asked under stress."""
    from attnbench.attention.checks.checks import verify
    from attnbench.attention.checks.panel import stressed

    (name,) = question.names
    checks = [*verify(card(name)), *(stressed(card(name)) if question.stress else ())]
    return Verified(checks=tuple(checks))


def describe(name: str, card: Card, device: str) -> dict[str, Any]:
    """A card as data, with which forms run on the device or why not."""
    w = Workload(batch=1, seq_len=1024, level=Level.ATTENTION, device=device)
    config = card.config()
    refused = {form: reason for form in card.forms if (reason := card.refusal(form, config, w))}
    for form, mode in product(card.forms, PASSES):
        reason = card.refusal(form, config, replace(w, mode=mode))
        if reason and form not in refused:
            refused[f"{form} in {mode}"] = reason
    return {
        "name": name,
        "class": card.family,
        "complexity": card.cost.printed,
        "symbols": card.symbols,
        "causal": card.causality,
        "launches": card.launches,
        "waits": card.waits,
        "decode": {form: card.cannot_decode(form) or "runs" for form in card.own_forms},
        "forms": {form: refused.get(form, "runs") for form in card.forms},
        "default": card.default_form(config, w),
        "parameters": card.parameters(config, w),
        "flops": {
            form: asdict(module.flops(config, w))
            for form, module in card.forms.items()
            if not module.flops_estimated
        },
        "packages": {
            form: {"package": found, "version": installed(found), "departs": module.deviation}
            for form, module in card.forms.items()
            if (found := module.package)
        },
        "options": {f.name: f.default for f in fields(config)},
        "paper": asdict(card.paper),
        "declared": card.declared,
        "equations": sys.modules[card.eager.__module__].__doc__ if card.declared else None,
        "options_mean": card.config.__doc__,
        "refused": refused,
    }


Worker = CardReader  # the name that `measuring.server` loads
