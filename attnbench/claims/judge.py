"""Claims judged by a sweep: each call of a check in each mode, and how the answers join."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from attnbench.claims.bench import Bench, forms
from attnbench.claims.claim import (
    Answer,
    Call,
    Claim,
    ClaimedMode,
    Judgement,
    OutOfScope,
    Quantity,
)
from attnbench.records import Mode


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim with what a sweep says of it."""

    claim: Claim
    judgement: Judgement


def judge(bench: Bench, claims: Sequence[Claim]) -> tuple[Judged, ...]:
    """Each claim as reproduced, not reproduced, cannot tell, or out of scope, in their order."""
    return tuple(
        Judged(claim=claim, judgement=joined([_judged(bench, call) for call in claim.check]))
        for claim in claims
    )


def wanted(claims: Sequence[Claim]) -> tuple[str, ...]:
    """What a sweep must measure to judge every claim, as `--models` takes it, sorted.

    Options that a check names are left out.
    """
    subjects = [s for claim in claims for call in claim.check for s in call.subjects]
    names = {":".join((s.mechanism, *(forms(s) or ())[:1])) for s in subjects}
    formed = {name.partition(":")[0] for name in names if ":" in name}
    return tuple(sorted(names - formed))


def joined(parts: Sequence[Judgement]) -> Judgement:
    """All parts must hold: one that fails decides, then one that cannot be told.

    Parts out of scope leave what the others reproduce open; if all are, the whole is.
    """
    answers = {part.answer for part in parts}
    if Answer.NOT_REPRODUCED in answers:
        return _merged(parts, Answer.NOT_REPRODUCED)
    return _merged(parts, answers.pop() if len(answers) == 1 else Answer.CANNOT_TELL)


def agreed(parts: Sequence[Judgement]) -> Judgement:
    """Modes that a source does not tell apart: what all of them in scope say, if they agree."""
    inside = [part for part in parts if part.answer is not Answer.OUT_OF_SCOPE] or parts
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


def _judged(bench: Bench, call: Call) -> Judgement:
    """One call of a check, in every mode that it is about."""
    try:
        if call.level not in (None, bench.level):
            raise OutOfScope(f"the claim is about level {call.level}, the sweep has {bench.level}")
        if call.device is not None and call.device.lower() not in bench.device.lower():
            raise OutOfScope(f"the claim is about {call.device}, the sweep ran on {bench.device}")
        modes = bench.modes(call.mode or ClaimedMode.UNPRINTED)
    except OutOfScope as reason:
        return Judgement(answer=Answer.OUT_OF_SCOPE, why=str(reason))
    # what is counted, or stored with the sweep, is the same in every mode
    costs = (Quantity.TIME, Quantity.MEMORY)
    exact = call.mode is None and not any(cost in call.arguments.values() for cost in costs)
    return agreed([_in_mode(bench, call, mode) for mode in (modes[-1:] if exact else modes)])


def _in_mode(bench: Bench, call: Call, mode: Mode) -> Judgement:
    try:
        judgement = _value(bench, call, mode)
        assert isinstance(judgement, Judgement)
        return judgement
    except OutOfScope as reason:
        return Judgement(answer=Answer.OUT_OF_SCOPE, why=str(reason))


def _value(bench: Bench, call: Call, mode: Mode) -> Any:
    """What the call's function returns; every function takes the bench and the mode."""
    arguments = {
        name: _value(bench, value, mode) if isinstance(value, Call) else value
        for name, value in call.arguments.items()
    }
    return call.function(bench, **{**arguments, "mode": mode})
