"""The process that reads cards: what mechanisms declare, as plain data.

The code of a user's file or of an installed package runs here and never in the parent: it may
print, hang, raise, exit, or kill the process.
"""

import sys
from dataclasses import asdict, fields, replace
from itertools import product
from typing import Any

import msgspec

from attnbench.attention import Card
from attnbench.errors import AttnbenchError, CannotRun, UnknownMechanism, one_line
from attnbench.measuring.planner import facts, plan
from attnbench.mechanisms import catalogue
from attnbench.mechanisms.peers import installed
from attnbench.records import (
    PASSES,
    CardFacts,
    Causality,
    Level,
    Outcome,
    Planned,
    Workload,
    messages,
)


class CardReader:
    """Answers about mechanisms; a failure names the class of its `error` and has its `reason`."""

    conversation: object

    def __init__(self, tree: None, **_: Any) -> None:
        """A reader always reads this package, never another source tree."""

    def answer(self, do: str, **fields: Any) -> dict[str, Any]:
        """What a question in plain data gives, in plain data; an exception becomes a failure."""
        question = messages.read_question({"do": do, **fields})
        try:
            return messages.written(answer_to(question))
        except AttnbenchError as error:
            return messages.written(failure_of(type(error), str(error)))
        except (Exception, SystemExit) as error:
            names = " or ".join(map(repr, getattr(question, "names", ())))
            reason = f"{names}: its card fails: {one_line(error)}"
            return messages.written(failure_of(UnknownMechanism, reason))


def failure_of(kind: type[AttnbenchError], reason: str) -> messages.Failure:
    """The failure that the parent raises as an error of this kind."""
    return messages.Failure(outcome=Outcome.FAILED, error=kind.__name__, reason=reason)


def answer_to(question: messages.Known) -> messages.ProcessAnswer:
    """The answer to a question. Raises what cards raise, and `TypeError` for other questions."""
    match question:
        case messages.ReadPlan():
            return plans(question)
        case messages.Describe(names=names, device=device):
            return messages.Described(
                described=tuple(describe(name, catalogue.card(name), device) for name in names)
            )
        case messages.Verify():
            return results_of_checks(question)
    raise TypeError(f"a reader of cards does not answer {type(question).__name__}")


def plans(question: messages.ReadPlan) -> messages.Plans:
    """The cases of each selection, and what a report needs of each mechanism.

    Raises `CannotRun` if numbers of cases are beyond any machine.
    """
    plans = []
    for selection in question.selections:
        cases = [asdict(case) for case in plan(selection, question.request)]
        try:
            plans.append(msgspec.convert(cases, tuple[Planned, ...]))
        except ValueError as error:
            reason = f"{selection} cannot be planned: {error}; ask for smaller sizes"
            raise CannotRun(reason) from error
    cards = (msgspec.convert(asdict(facts(name)), CardFacts) for name in question.names)
    return messages.Plans(plan=tuple(plans), cards=tuple(cards))


def results_of_checks(question: messages.Verify) -> messages.Verified:
    """The results of the contract's checks on a mechanism, and if asked under stress."""
    from attnbench.attention.checks.checks import verify
    from attnbench.attention.checks.panel import stressed

    (name,) = question.names
    checks = [
        *verify(catalogue.card(name)),
        *(stressed(catalogue.card(name)) if question.stress else ()),
    ]
    return messages.Verified(checks=tuple(checks))


def describe(name: str, card: Card, device: str) -> dict[str, Any]:
    """A card as data, with which forms run on the device or why not."""
    causal = card.causality is Causality.ALWAYS
    w = Workload(batch=1, seq_len=1024, level=Level.ATTENTION, device=device, causal=causal)
    config = card.config()
    refusals = {form: reason for form in card.forms if (reason := card.refusal(form, config, w))}
    for form, mode in product(card.forms, PASSES):
        reason = card.refusal(form, config, replace(w, mode=mode))
        if reason and form not in refusals:
            refusals[f"{form} in {mode}"] = reason
    return {
        "name": name,
        "class": card.family,
        "complexity": card.cost.printed,
        "symbols": card.symbols,
        "causal": card.causality,
        "launches": card.launches,
        "waits": card.waits,
        "decode": {form: card.cannot_decode(form) or "runs" for form in card.own_forms},
        "forms": {form: refusals.get(form, "runs") for form in card.forms},
        "default": card.default_form(config, w),
        "parameters": card.parameters(config, w),
        "flops": {
            form: asdict(module.flops(config, w))
            for form, module in card.forms.items()
            if not module.flops_estimated
        },
        "packages": {
            form: {"package": package, "version": installed(package), "departs": module.deviation}
            for form, module in card.forms.items()
            if (package := module.package)
        },
        "options": {f.name: f.default for f in fields(config)},
        "paper": asdict(card.paper),
        "declared": card.declared,
        "equations": sys.modules[card.eager.__module__].__doc__ if card.declared else None,
        "options_mean": card.config.__doc__,
        "refused": refusals,
    }


Worker = CardReader  # the name that `measuring.server` loads
