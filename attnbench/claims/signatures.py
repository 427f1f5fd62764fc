"""The predicates of the grammar of claims: what each takes, and what may follow it."""

from dataclasses import dataclass
from enum import StrEnum

from attnbench.claims.claim import Sign


class Kind(StrEnum):
    """What an argument of a predicate is."""

    SUBJECT = "a mechanism"
    GROUP = "a group of mechanisms"
    MODE = "a mode"
    QUANTITY = "a quantity"
    OVER = "length or an option"
    CALL = "a call"
    LENGTH = "a length"


QUANTITIES = ("time", "memory", "core_flops", "projection_flops")


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What a predicate takes, and which signs may follow it; none: it is an assertion itself."""

    name: str
    kinds: tuple[Kind, ...]
    signs: tuple[Sign, ...] = ()
    formula: bool = False
    lengths: tuple[Sign, ...] = ()


COMPARED = (Sign.EQUAL, Sign.AT_MOST, Sign.AT_LEAST, Sign.BELOW, Sign.ABOVE)
ANY_LENGTHS = (Sign.AT, Sign.ONE_OF, Sign.WITHIN, Sign.AT_LEAST, Sign.ABOVE, Sign.AT_MOST)
PAIR = (Kind.SUBJECT, Kind.SUBJECT, Kind.MODE)
AMONG = (Kind.SUBJECT, Kind.GROUP, Kind.MODE)
ONE = (Kind.SUBJECT, Kind.MODE)

SIGNATURES = (
    Signature(name="faster", kinds=PAIR, lengths=ANY_LENGTHS),
    Signature(name="less_memory", kinds=PAIR, lengths=ANY_LENGTHS),
    Signature(name="fastest", kinds=AMONG, lengths=ANY_LENGTHS),
    Signature(name="slowest", kinds=AMONG, lengths=ANY_LENGTHS),
    Signature(name="least_memory", kinds=AMONG, lengths=ANY_LENGTHS),
    Signature(name="same", kinds=(*PAIR[:2], Kind.QUANTITY, Kind.MODE), lengths=ANY_LENGTHS),
    Signature(name="crossover", kinds=PAIR, signs=(Sign.AT_MOST, Sign.WITHIN, Sign.EQUAL)),
    Signature(name="speedup", kinds=PAIR, signs=COMPARED, lengths=ANY_LENGTHS),
    Signature(name="memory_saving", kinds=PAIR, signs=COMPARED, lengths=ANY_LENGTHS),
    Signature(
        name="ratio",
        kinds=(*PAIR[:2], Kind.QUANTITY, Kind.MODE),
        signs=COMPARED,
        lengths=ANY_LENGTHS,
    ),
    Signature(
        name="growth",
        kinds=(Kind.QUANTITY, Kind.SUBJECT, Kind.MODE, Kind.LENGTH, Kind.LENGTH),
        signs=COMPARED,
    ),
    Signature(name="increasing", kinds=(Kind.CALL, Kind.OVER), lengths=ANY_LENGTHS),
    Signature(name="decreasing", kinds=(Kind.CALL, Kind.OVER), lengths=ANY_LENGTHS),
    Signature(name="oom", kinds=ONE, lengths=(Sign.AT, Sign.AT_MOST)),
    Signature(name="fits", kinds=ONE, lengths=(Sign.AT,)),
    Signature(name="max_length", kinds=ONE, signs=(Sign.EQUAL,)),
    Signature(name="throughput", kinds=ONE, signs=(Sign.AT_MOST, Sign.AT_LEAST)),
    Signature(name="order", kinds=(Kind.SUBJECT, Kind.QUANTITY), formula=True),
    Signature(name="slope", kinds=(Kind.SUBJECT, Kind.QUANTITY), signs=(Sign.EQUAL,)),
    Signature(name="maps_over_core", kinds=(Kind.SUBJECT,), signs=COMPARED, lengths=ANY_LENGTHS),
    Signature(name="no_causal_form", kinds=(Kind.SUBJECT,)),
)

# what increasing(…) and decreasing(…) may follow
FOLLOWED = ("speedup", "memory_saving", "ratio")


def signature(name: str) -> Signature | None:
    """The signature of that name, or None."""
    return next((found for found in SIGNATURES if found.name == name), None)
