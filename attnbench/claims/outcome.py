"""How a claim came out, and how the outcomes of its parts make one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pandas as pd

from attnbench.claims.bench import stated
from attnbench.claims.claim import Lengths
from attnbench.metrics import Unit

# a claim over a range of lengths needs so many of them; one that lists fewer needs those
FEWEST = 3


class Answer(StrEnum):
    """What a sweep says of a claim."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    CANNOT_TELL = "cannot tell"
    OUT_OF_SCOPE = "out of scope"


@dataclass(frozen=True, kw_only=True)
class Number:
    """A measured number behind an answer, with its 95 % interval where it has one."""

    what: str
    unit: Unit
    value: float
    low: float = np.nan
    high: float = np.nan
    length: int | None = None  # None: of all lengths together


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """An answer, why, the numbers behind it (the most telling first) and their lengths."""

    answer: Answer
    why: str = ""
    numbers: tuple[Number, ...] = ()
    lengths: tuple[int, ...] = ()


def everywhere(
    signed: pd.DataFrame, numbers: Sequence[Number], lengths: Lengths | None
) -> Judgement:
    """Whether each row's interval, `low` to `high`, lies above zero; `numbers` go with the rows.

    Reproduced if all do, at three lengths or all that are listed; not reproduced if any lies wholly
    below; else it cannot be told.
    """
    order = np.argsort(signed["low"].to_numpy(), kind="stable")
    told = tuple(numbers[i] for i in order)
    at = tuple(sorted({int(n) for n in signed.index}))
    yes, no = signed["low"] > 0, signed["high"] < 0
    if no.any():
        answer, why = Answer.NOT_REPRODUCED, f"not so at {_places(signed[no])}"
    elif not yes.all():
        unknown = signed["low"].isna()
        word = "no interval" if unknown.any() else "the interval reaches both sides"
        rows = signed[unknown] if unknown.any() else signed[~yes]
        answer, why = Answer.CANNOT_TELL, f"{word} at {_places(rows)}"
    elif (few := too_few(len(at), lengths)) is not None:
        answer, why = Answer.CANNOT_TELL, few
    else:
        answer, why = Answer.REPRODUCED, ""
    return Judgement(answer=answer, why=why, numbers=told, lengths=at)


def too_few(count: int, lengths: Lengths | None) -> str | None:
    """Why so many lengths do not suffice, or None."""
    needed = min(FEWEST, stated(lengths) or FEWEST)
    return None if count >= needed else f"too few lengths: {count} of at least {needed}"


def joined(parts: Sequence[Judgement]) -> Judgement:
    """All parts must hold: one that fails decides, then one that cannot be told.

    Parts out of scope leave what the others reproduce open; if all are, the whole is.
    """
    answers = [part.answer for part in parts]
    if Answer.NOT_REPRODUCED in answers:
        return _merged(parts, Answer.NOT_REPRODUCED)
    if set(answers) == {Answer.REPRODUCED}:
        return _merged(parts, Answer.REPRODUCED)
    if set(answers) == {Answer.OUT_OF_SCOPE}:
        return _merged(parts, Answer.OUT_OF_SCOPE)
    return _merged(parts, Answer.CANNOT_TELL)


def agreed(parts: Sequence[Judgement]) -> Judgement:
    """Modes that a source does not tell apart: what all of them in scope say, if they agree."""
    inside = [part for part in parts if part.answer is not Answer.OUT_OF_SCOPE]
    if not inside:
        return joined(parts)
    answers = {part.answer for part in inside}
    if len(answers) == 1:
        return _merged(inside, answers.pop())
    merged = _merged(inside, Answer.CANNOT_TELL)
    return replace(merged, why="; ".join(["modes differ", *filter(None, [merged.why])]))


def _merged(parts: Sequence[Judgement], answer: Answer) -> Judgement:
    """The parts as one, those that give the answer first."""
    ordered = sorted(parts, key=lambda part: part.answer is not answer)
    reasons = dict.fromkeys(part.why for part in ordered if part.why)
    return Judgement(
        answer=answer,
        why="; ".join(reasons),
        numbers=tuple(number for part in ordered for number in part.numbers),
        lengths=tuple(sorted({n for part in parts for n in part.lengths})),
    )


def _places(rows: pd.DataFrame) -> str:
    found = [f"{n:,}" for n in sorted(set(rows.index))]
    return ", ".join(found if len(found) <= 4 else [*found[:3], f"… {found[-1]}"])
