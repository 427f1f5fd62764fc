"""Claims judged by a sweep: each call of a check in each mode, and how answers are joined."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from attnbench.claims.bench import Bench, forms
from attnbench.claims.claim import (
    Answer,
    Call,
    Claim,
    ClaimedCost,
    ClaimedMode,
    Judgement,
    OutOfScope,
)
from attnbench.records import Mode


class Judged(NamedTuple):
    """A claim with the judgement of a sweep."""

    claim: Claim
    judgement: Judgement


def judge(bench: Bench, claims: Sequence[Claim]) -> tuple[Judged, ...]:
    """Each claim as reproduced, not reproduced, cannot tell, or out of scope, in their order."""
    return tuple(
        Judged(claim=claim, judgement=joined([_judged(bench, call) for call in claim.check]))
        for claim in claims
    )


def wanted(claims: Sequence[Claim]) -> tuple[str, ...]:
    """The mechanisms and forms that judging every claim needs, as `--models` takes them, sorted.

    Options that a check names are left out.
    """
    subjects = [s for claim in claims for call in claim.check for s in call.subjects]
    names = {":".join((s.mechanism, *(forms(s) or ())[:1])) for s in subjects}
    formed = {name.partition(":")[0] for name in names if ":" in name}
    return tuple(sorted(names - formed))


def joined(parts: Sequence[Judgement]) -> Judgement:
    """All parts must hold: one that is not reproduced decides.

    If every part has the same answer, that is the answer; any other mixture is "cannot tell".
    """
    answers = {part.answer for part in parts}
    if Answer.NOT_REPRODUCED in answers:
        return _merged(parts, Answer.NOT_REPRODUCED)
    return _merged(parts, answers.pop() if len(answers) == 1 else Answer.CANNOT_TELL)


def agreed(parts: Sequence[Judgement]) -> Judgement:
    """The answer of several modes that a source does not distinguish, if those in scope agree."""
    in_scope = [part for part in parts if part.answer is not Answer.OUT_OF_SCOPE] or parts
    answers = {part.answer for part in in_scope}
    if len(answers) == 1:
        return _merged(in_scope, answers.pop())
    merged = _merged(in_scope, Answer.CANNOT_TELL)
    return replace(merged, why="; ".join(["modes differ", *filter(None, [merged.why])]))


def _merged(parts: Sequence[Judgement], answer: Answer) -> Judgement:
    """The parts as one judgement; the parts that give the answer come first."""
    ordered = sorted(parts, key=lambda part: part.answer is not answer)
    reasons = dict.fromkeys(part.why for part in ordered if part.why)
    return Judgement(
        answer=answer,
        why="; ".join(reasons),
        numbers=tuple(number for part in ordered for number in part.numbers),
        lengths=tuple(sorted({n for part in parts for n in part.lengths})),
    )


def _judged(bench: Bench, call: Call) -> Judgement:
    """One call of a check, in every mode that it covers."""
    try:
        if call.level not in (None, bench.level):
            raise OutOfScope(f"the claim is about level {call.level}, the sweep has {bench.level}")
        if call.device is not None and call.device.lower() not in bench.device.lower():
            raise OutOfScope(f"the claim is about {call.device}, the sweep ran on {bench.device}")
        modes = bench.modes(_claimed_mode(call))
    except OutOfScope as reason:
        return Judgement(answer=Answer.OUT_OF_SCOPE, why=str(reason))
    # counts and facts stored with the sweep are the same in every mode
    costs = (ClaimedCost.TIME, ClaimedCost.MEMORY)
    exact = call.mode is None and not any(cost in call.arguments.values() for cost in costs)
    return agreed([_in_mode(bench, call, mode) for mode in (modes[-1:] if exact else modes)])


def _claimed_mode(call: Call) -> ClaimedMode:
    """The mode that a call names; one about states is about generation."""
    if call.mode is None and ClaimedCost.STATE in call.arguments.values():
        return ClaimedMode.GENERATION
    return call.mode or ClaimedMode.UNPRINTED


def _in_mode(bench: Bench, call: Call, mode: Mode) -> Judgement:
    try:
        judgement: Judgement = _value(bench, call, mode)
        return judgement
    except OutOfScope as reason:
        return Judgement(answer=Answer.OUT_OF_SCOPE, why=str(reason))


def _value(bench: Bench, call: Call, mode: Mode) -> Any:
    """The result of the call's function; every function takes the bench and the mode."""
    arguments = {
        name: _value(bench, value, mode) if isinstance(value, Call) else value
        for name, value in call.arguments.items()
    }
    return call.function(bench, **{**arguments, "mode": mode})
