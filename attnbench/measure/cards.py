"""The cards of the measured tree, and the cases that requests resolve to."""

import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

import msgspec

from attnbench.attention.card import Card
from attnbench.attention.contract import Attention
from attnbench.catalogue.registry import GROUP, card, names
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
        path, in_file, card_name = mechanism.rpartition(".py:")
        if in_file:
            if not (self.tree / f"{path}.py").is_file():
                raise Unmeasured("missing", f"there is no file {path}.py")
            try:
                return card(f"{self.tree}/{path}.py:{card_name}")
            except Exception:
                if lacks(self.tree / f"{path}.py", card_name):
                    raise Unmeasured("missing", f"{path}.py has no {card_name}") from None
                raise
        if mechanism not in names():
            raise Unmeasured("missing", f"there is no mechanism {mechanism!r}")
        registered = card(mechanism)
        for file in files_of(mechanism) if self.own else ():
            if not file.is_relative_to(self.tree.resolve()):
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
        if form is not None and form not in card.forms:
            forms = ", ".join(card.forms)
            raise Unmeasured("missing", f"{mechanism} has no form {form!r}; forms: {forms}")
        if form is None:
            form = card.default_form(config, w)
        if reason := card.refusal(form, config, w):
            raise Unmeasured("unsupported", reason)
        chosen = tuple((name, value) for name, value in options)
        return card, config, Case(mechanism=mechanism, form=form, options=chosen, workload=w)


def lacks(file: Path, name: str) -> bool:
    """Whether the file is loaded but does not define the name."""
    loaded = [m for m in sys.modules.values() if getattr(m, "__file__", None) == str(file)]
    return bool(loaded) and not any(hasattr(module, name) for module in loaded)


def files_of(mechanism: str) -> tuple[Path, ...]:
    """The files that a registered mechanism was loaded from."""
    own = f"attnbench.mechanisms.{mechanism}"
    offered = [point.module for point in entry_points(group=GROUP, name=mechanism)]
    modules = [sys.modules.get(name) for name in ([own] if own in sys.modules else offered)]
    files = [getattr(module, "__file__", None) for module in modules]
    return tuple(Path(file).resolve() for file in files if file)


def package(form: type[Attention]) -> str:
    """`transformers 4.46.3`: the package that computes the form; empty if the tree itself does."""
    try:
        return f"{form.package} {version(form.package)}" if form.package else ""
    except PackageNotFoundError:  # importable, but without metadata of an installer
        return form.package
