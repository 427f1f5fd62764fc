"""What a report needs to know of a mechanism."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from attnbench.records.bounds import Option, Year


class Family(StrEnum):
    """The classes of "Efficient Transformers: A Survey", and of later mechanisms."""

    FULL = "full"
    FIXED = "FP"
    FIXED_MEMORY = "FP+M"
    MEMORY = "M"
    LEARNED = "LP"
    LOW_RANK = "LR"
    LOW_RANK_LEARNED = "LR+LP"
    KERNEL = "KR"
    RECURRENCE = "RC"
    SHARED = "SH"  # this and the next two are not in the survey: shared or compressed keys
    STATE = "ST"  # a recurrent state of fixed size
    MIXING = "MX"  # a fixed linear map of the tokens
    UNKNOWN = "–"  # of a user's module


UNDECLARED = "not declared"  # the complexity of a module without a card


class Causality(StrEnum):
    """Whether a mechanism can run causally."""

    NEVER = "never"
    OPTIONAL = "optional"
    ALWAYS = "always"
    TESTED = "tested when it runs"  # of a user's module that takes no such parameter


@dataclass(frozen=True, kw_only=True)
class CardFacts:
    """What a report needs to know of a mechanism, stored with the sweep to avoid loading torch.

    `complexity` is as papers print it. The year of a user's module is unknown.
    """

    mechanism: str
    title: str
    authors: str
    year: Year | None
    source: str
    family: Family
    causality: Causality
    complexity: str
    forms: tuple[str, ...]
    options: Mapping[str, Option]  # every option with its default
    symbols: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of the complexity
    code: str = ""  # a digest of its file; empty in older journals
