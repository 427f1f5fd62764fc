"""The process that reads cards: what mechanisms declare, as plain data.

The code of a user's file or of an installed package runs here and never in the parent: it may
print, hang, raise, exit, or kill the process.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from itertools import product
from typing import Any

import msgspec

from attnbench.attention.card import Card
from attnbench.catalogue.registry import card
from attnbench.errors import AttnbenchError, UnknownMechanism, one_line
from attnbench.peers import installed
from attnbench.records import PASSES, CardFacts, Level, Request, Selection, Workload
from attnbench.workloads.plan import facts, plan


class CardReader:
    """Answers about mechanisms; a failure is the name of an `error` class with a `reason`."""

    def __init__(self, tree: None, **_: Any) -> None:
        """A reader always reads this package, never another source tree."""

    def answer(self, do: str, names: Sequence[str], **asked: Any) -> Mapping[str, Any]:
        """The answer to one question; a card's exception becomes an error."""
        questions: dict[str, Callable[..., dict[str, Any]]] = {
            "plan": planned,
            "describe": described,
            "verify": verified,
        }
        try:
            return {"outcome": "ok", **questions[do](names, **asked)}
        except AttnbenchError as error:
            return {"outcome": "failed", "error": type(error).__name__, "reason": str(error)}
        except (Exception, SystemExit) as error:
            reason = f"{' or '.join(map(repr, names))}: its card fails: {one_line(error)}"
            return {"outcome": "failed", "error": UnknownMechanism.__name__, "reason": reason}


def planned(
    names: Sequence[str], request: Mapping[str, Any], selections: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The cases of each selection, and what a report needs of each mechanism."""
    asked = msgspec.convert(request, Request)
    chosen = msgspec.convert(selections, list[Selection])
    plans = [[asdict(case) for case in plan(selection, asked)] for selection in chosen]
    cards = [msgspec.convert(asdict(facts(name)), CardFacts) for name in names]
    return {"plan": plans, "cards": [asdict(card) for card in cards]}


def described(names: Sequence[str], device: str) -> dict[str, Any]:
    """Each mechanism in full, as `attnbench models` prints it."""
    return {"described": [describe(name, card(name), device) for name in names]}


def verified(names: Sequence[str], stress: bool) -> dict[str, Any]:
    """The results of the contract's checks on a mechanism, and if asked under stress."""
    from attnbench.verify.checks import verify
    from attnbench.verify.panel import stressed

    (name,) = names
    return {"checks": [*verify(card(name)), *(stressed(card(name)) if stress else ())]}


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


Worker = CardReader  # the name that `measure.server` loads
