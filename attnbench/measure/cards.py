"""The cards of the measured tree, and the cases that requests resolve to."""

import sys
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec

from attnbench.attention.card import Card
from attnbench.catalogue.registry import GROUP, card, module_of, names
from attnbench.catalogue.stacked import stacked
from attnbench.records import Case, Causality, Option, Workload
from attnbench.records.selection import layers


class Unmeasured(Exception):
    """Why a case is not measured: an outcome, and the reason in the text."""

    def __init__(self, outcome: str, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


class Cards:
    """The cards of one source tree, or of this package if `tree` is None.

    `own`: only mechanisms of the tree itself count, not those of an installed package.
    """

    def __init__(self, tree: Path | None, own: bool) -> None:
        self.tree, self.own = tree, own

    def find(self, mechanism: str) -> Card:
        """The tree's card of a mechanism. Raises `Unmeasured`."""
        if self.tree is None:
            return card(mechanism)
        if layers(mechanism):
            return stacked(mechanism, self.find)
        path, _, name = mechanism.rpartition(":")
        if path.endswith(".py"):
            file = self.tree / path
            if not file.is_file():
                raise Unmeasured("missing", f"there is no file {path}")
            if not hasattr(module_of(file), name):
                raise Unmeasured("missing", f"{path} has no {name}")
            return card(f"{file}:{name}")
        if mechanism not in names():
            raise Unmeasured("missing", f"there is no mechanism {mechanism!r}")
        registered = card(mechanism)
        if self.own and not (file := origin(mechanism)).is_relative_to(self.tree.resolve()):
            elsewhere = f"{mechanism} comes from {file}, which is not in this repository"
            raise Unmeasured("missing", elsewhere)
        return registered

    def resolve(
        self,
        mechanism: str,
        form: str | None,
        options: list[tuple[str, Option]],
        workload: dict[str, Any],
    ) -> tuple[Card, Any, Case]:
        """Card, config and case. Raises `Unmeasured`."""
        card = self.find(mechanism)
        w = msgspec.convert(workload, Workload)
        if w.steps or card.causality is Causality.ALWAYS:
            w = replace(w, causal=True)
        config = card.configure(dict(options))
        if form is None:
            form = card.default_form(config, w)
        if form not in card.forms:
            forms = ", ".join(card.forms)
            raise Unmeasured("missing", f"{mechanism} has no form {form!r}; forms: {forms}")
        if reason := card.refusal(form, config, w):
            raise Unmeasured("unsupported", reason)
        chosen = tuple((name, value) for name, value in options)
        return card, config, Case(mechanism=mechanism, form=form, options=chosen, workload=w)


def origin(mechanism: str) -> Path:
    """The file that a registered mechanism was loaded from."""
    offered = [point.module for point in entry_points(group=GROUP, name=mechanism)]
    known = (f"attnbench.mechanisms.{mechanism}", *offered)
    loaded = next(sys.modules[name] for name in known if name in sys.modules)
    return Path(loaded.__file__ or "/").resolve()
