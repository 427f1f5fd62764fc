"""What the names of claims stand for in a sweep: forms, groups, and which curve is meant."""

from collections.abc import Mapping
from types import MappingProxyType

from attnbench.claims.claim import Group, Subject
from attnbench.records import CardFacts, Case, Option

# a claim's form on the left, on the right the forms here that it may be judged by, best first:
# `flash` is a fused kernel that never stores the weights; torch's sdpa dispatches to one unless
# the sweep has recorded that it ran its plain kernel
FORMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"eager": ("eager",), "sdpa": ("sdpa",), "flash": ("sdpa", "xformers", "flex")}
)

# how options of papers are called here: hash rounds are `rounds`, and a window of 257 that counts
# the token itself is `window=256`; the checks use the names on the right

PLAIN = "math"  # in the name of the kernel that stores the weights

GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        # Fastformer, Fig. 2
        "@fig2": (
            "transformer",
            "longformer",
            "bigbird",
            "linformer",
            "linear_transformer",
            "poolingformer",
            "fastformer",
        ),
        # Long Range Arena, the nine of Table 2 that the project ships
        "@lra": (
            "transformer",
            "local",
            "linformer",
            "reformer",
            "sinkhorn",
            "synthesizer",
            "bigbird",
            "linear_transformer",
            "performer",
        ),
    }
)


def members(group: Group) -> tuple[str, ...]:
    """The mechanisms of a group. Raises `KeyError` for a name that is no group."""
    whole = GROUPS[group.name] if group.name else group.members
    return tuple(name for name in whole if name not in group.minus)


def forms(subject: Subject) -> tuple[str, ...] | None:
    """The forms that a subject may be judged by, or None for any."""
    if subject.form is None:
        return None
    return FORMS.get(subject.form, (subject.form,))


def full_options(case: Case, cards: Mapping[str, CardFacts]) -> dict[str, Option]:
    """Every option of a case, defaults included."""
    card = cards.get(case.mechanism)
    return {**(card.options if card else {}), **dict(case.options)}


def fits_options(subject: Subject, options: Mapping[str, Option]) -> bool:
    """Whether every option of the subject has one of its values."""
    return all(name in options and options[name] in values for name, values in subject.options)
