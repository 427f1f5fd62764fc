"""Inside the process that reads cards: what mechanisms say of themselves, as plain data.

The code of a user's file or of an installed package runs here and never in the parent: it may
print, hang, raise, leave, or end the process.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import msgspec

from attnbench.contract import Card
from attnbench.errors import AttnbenchError, UnknownMechanism
from attnbench.records import Level, Mode, Request, Selection, Workload
from attnbench.registry import card, one_line
from attnbench.workloads.plan import facts, plan


class Worker:
    """Answers with `plan` and `cards`, or `described`; or with `error`, a class's name."""

    def __init__(self, tree: None, **_: Any) -> None:
        """A reader has no source tree but this package's."""

    def answer(self, do: str, names: Sequence[str], **asked: Any) -> Mapping[str, Any]:
        """The answer to one question, whatever a card does."""
        questions = {"plan": planned, "describe": described}
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
    lines = [[asdict(line) for line in plan(each, asked)] for each in chosen]
    return {"plan": lines, "cards": [asdict(facts(name)) for name in names]}


def described(names: Sequence[str], device: str) -> dict[str, Any]:
    """Each mechanism in full, as `attnbench models` prints it."""
    return {"described": [describe(name, card(name), device) for name in names]}


def describe(name: str, its: Card, device: str) -> dict[str, Any]:
    """A card as data, with which forms run on the device or why not."""
    workload = Workload(batch=1, seq_len=1024, level=Level.ATTENTION, device=device)
    config = its.config()
    return {
        "name": name,
        "class": its.family,
        "complexity": its.cost.printed,
        "causal": its.causality,
        "forms": {form: its.refusal(form, config, workload) or "runs" for form in its.forms},
        "default": its.default(config, workload),
        "parameters": its.parameters(config, workload),
        "flops": {
            form: asdict(module.flops(config, workload)) for form, module in its.forms.items()
        },
        "options": {f.name: f.default for f in fields(config)},
        "paper": asdict(its.paper),
        "declared": its.declared,
        "equations": sys.modules[its.forms["eager"].__module__].__doc__ if its.declared else None,
        "options_mean": its.config.__doc__,
        "refused": refusals(its, workload),
    }


def refusals(its: Card, workload: Workload) -> dict[str, str]:
    """Why forms do not run, by form and mode."""
    found = {
        f"{form} ({mode})": its.refusal(form, its.config(), replace(workload, mode=mode))
        for form in its.forms
        for mode in Mode
    }
    return {form: reason for form, reason in found.items() if reason}
