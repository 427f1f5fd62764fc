"""Finds the subject of a case: one class for each mode, in the file named after it."""

import importlib
from typing import cast

from attnbench.attention.card import Card
from attnbench.measure.subject import Subject
from attnbench.records import Case


def kind(mode: str) -> type[Subject]:
    """The class of a mode: `Training` from `subjects/training.py`."""
    name = "".join(map(str.capitalize, mode.split("_")))
    module = importlib.import_module(f"attnbench.measure.subjects.{mode}")
    return cast(type[Subject], getattr(module, name))


def subject_of(card: Card, case: Case, seed: int, filled: bool = False) -> Subject:
    """The subject of a case, by its mode."""
    return kind(case.workload.mode)(card, case, seed, filled)
