"""A user's function judged as a mechanism: how it is called, and the panel of its errors."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import product
from operator import itemgetter
from typing import Any

import torch

from attnbench.attention.card import Card
from attnbench.attention.contract import Unusable
from attnbench.attention.core import AXES, CAUSAL
from attnbench.records import Causality
from attnbench.records.selection import options_text
from attnbench.verify.panel import RIGHT, STEADY, WIDTH, Row, panel, row
from attnbench.verify.stress import USUAL, Stress
from attnbench.verify.trial import NotApplicable, Trial, causal_values

TOKENS, MANY = 64, 100


def judged(
    card: Card, form: str, options: Mapping[str, Any], dtype: str, device: str
) -> dict[str, Any]:
    """What is found of a function, as plain data.

    `axes` and `causal` are how it errs least, `errors` those of all ways to call it, `untaken` the
    tensors that it does not take, `trains` whether it has a backward pass, `panel` the rows of
    its errors, and `right` and `steady` whether those pass. Raises `Unusable`.
    """
    if form not in card.forms:
        known = ", ".join(name for name in card.forms if hasattr(card.forms[name], "function"))
        raise Unusable(f"there is no function {form!r}; the file has {known or 'none'}")
    number = getattr(torch, dtype)
    ways = fitted(card, form, options, number, device)
    _, trial = ways[0]
    module: Any = trial.build(trial.workload(TOKENS))
    untaken = [name for name in module.names if name not in module.accepted]
    if card.causality is Causality.OPTIONAL and module.accepted.keys().isdisjoint(CAUSAL):
        untaken.append(CAUSAL[0])
    rows = [*with_options(trial, module.accepted, number), *panel(trial, number)]
    return {
        "form": form,
        "dtype": dtype,
        "device": device,
        "axes": trial.config.axes,
        "causal": trial.causal,
        "errors": {way(each): error for error, each in ways},
        "untaken": untaken,
        "trains": any(len(found["errors"]) > 1 for found in rows),
        **{part: all(r["passes"] for r in rows if r["part"] == part) for part in (RIGHT, STEADY)},
        "panel": rows,
    }


def with_options(trial: Trial, taken: Collection[str], dtype: torch.dtype) -> Iterator[Row]:
    """Rows of the card's examples, whose options are small, if the function takes these options."""
    for example in trial.card.examples:
        options = {name: value for name, value in trial.card.options(example) if name != "bias"}
        if options and options.keys() <= {*taken}:
            small = replace(trial, config=replace(trial.config, **options))
            inputs = Stress(f"with {options_text(options.items())}")
            yield row(small, RIGHT, inputs, MANY, dtype)


def fitted(
    card: Card, form: str, options: Mapping[str, Any], dtype: torch.dtype, device: str
) -> list[tuple[float, Trial]]:
    """The error of the output on a short sequence in each way to call a function, least first.

    Axes among the options are kept. Raises `Unusable` if it gives nothing to compare.
    """
    config: Any = card.configure(options)
    axes = (config.axes,) if "axes" in options else AXES
    ways = product(axes, reversed(causal_values(card.causality)))
    tried = [Trial(card, replace(config, axes=a), form, c, device, WIDTH) for a, c in ways]
    try:
        rows = [row(trial, RIGHT, USUAL, TOKENS, dtype, backward=False) for trial in tried]
    except NotApplicable as error:
        raise Unusable(str(error)) from error
    both = [*zip(rows, tried, strict=True)]
    known = [(found["errors"]["output"], trial) for found, trial in both if found["errors"]]
    if not known:
        reasons = {trial.config.axes: found["reason"] for found, trial in both}
        said = "; ".join(f"with {axes} {why}" for axes, why in reasons.items())
        module: Any = tried[0].build(tried[0].workload(TOKENS))
        takes = ", ".join((*module.names, "mask", *sorted(module.known)))
        raise Unusable(f"it gives nothing to compare: {said}; a function may take {takes}")
    return sorted(known, key=itemgetter(0))


def way(trial: Trial) -> str:
    """`bnhd, causal`."""
    return f"{trial.config.axes}{', causal' if trial.causal else ''}"
