"""A user's function judged as a mechanism: how it is called, and the panel of its errors."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from attnbench.attention.card import Card
from attnbench.attention.contract import Unusable
from attnbench.attention.core import AXES
from attnbench.records import Causality
from attnbench.records.selection import options_text
from attnbench.verify.panel import RIGHT, WIDTH, Row, Setup, panel, row
from attnbench.verify.stress import USUAL
from attnbench.verify.trial import Trial, causal_values

TOKENS, MANY = 64, 100


class Fit(NamedTuple):
    """The trial of a function as it errs least, and the error of its output in each way."""

    trial: Trial
    errors: dict[str, float]


def judged(
    card: Card, form: str, options: Mapping[str, Any], dtype: str, device: str
) -> dict[str, Any]:
    """`axes`, `causal`, `errors` by ways to call it, names `untaken` and rows of the `panel`.

    Raises `Unusable` if it cannot be judged.
    """
    if form not in card.forms:
        known = ", ".join(name for name in card.forms if hasattr(card.forms[name], "function"))
        raise Unusable(f"there is no function {form!r}; the file has {known or 'none'}")
    number = getattr(torch, dtype)
    trial, errors = fitted(card, form, options, number, device)
    module: Any = trial.build(trial.workload(TOKENS), form=form)
    return {
        "axes": trial.config.axes,
        "causal": trial.causal,
        "errors": errors,
        "untaken": module.untaken(card.causality is Causality.OPTIONAL),
        "panel": [*with_options(trial, module.accepted.keys(), number), *panel(trial, number)],
    }


def with_options(trial: Trial, taken: Collection[str], dtype: torch.dtype) -> Iterator[Row]:
    """Rows of the card's examples, whose options are small, if the function takes these options."""
    examples: Any = trial.card.examples
    for example in examples:
        config = replace(example, axes=trial.config.axes, bias=trial.config.bias)
        differing = {
            name: value
            for name, value in vars(config).items()
            if value != getattr(trial.config, name)
        }
        if differing and set(differing) <= set(taken):
            setup = Setup(replace(trial, config=config), MANY, dtype)
            yield row(setup, RIGHT, USUAL._replace(name=f"with {options_text(differing.items())}"))


def fitted(
    card: Card, form: str, options: Mapping[str, Any], dtype: torch.dtype, device: str
) -> Fit:
    """The axes and causality with which a function errs least on a short sequence.

    Axes among the options are kept. Raises `Unusable` if it gives nothing to compare.
    """
    config: Any = card.configure(options)
    reasons = dict[str, str]()
    known: list[tuple[float, Trial]] = []
    for axes in (options["axes"],) if "axes" in options else AXES:
        for causal in reversed(causal_values(card.causality)):
            trial = Trial(card, replace(config, axes=axes), form, causal, device, WIDTH)
            setup = Setup(trial, TOKENS, dtype)
            if setup.refused:
                raise Unusable(setup.refused)
            error, _ = setup.errors(USUAL, backward=False)
            if isinstance(error, str):
                reasons[axes] = error
            else:
                known.append((error["output"], trial))
    if not known:
        said = "; ".join(f"with {axes} {why}" for axes, why in reasons.items())
        raise Unusable(f"it gives nothing to compare: {said}")
    _, best = min(known, key=lambda pair: pair[0])
    return Fit(best, {way(trial): error for error, trial in known})


def way(trial: Trial) -> str:
    """`bnhd, causal`."""
    return f"{trial.config.axes}{', causal' if trial.causal else ''}"
