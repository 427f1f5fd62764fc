"""Definitions of the predicates over a group of mechanisms, and over steps of one quantity."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd

from attnbench.claims.bench import Bench, Curve, OutOfScope, chosen, interval
from attnbench.claims.claim import Call, Clause, Group, Subject
from attnbench.claims.compare import log_ratios, numbers, pair, quantity_of
from attnbench.claims.names import members
from attnbench.claims.outcome import Answer, Judgement, Number, everywhere
from attnbench.records import Option, Outcome


def fastest(bench: Bench, clause: Clause, mode: str) -> Judgement:
    """A takes less time than every other of the group, at every length of the claim.

    One rival that is surely faster at one length refutes it. To be reproduced, no member may be
    missing from the sweep, and only lengths count at which each was measured, or ran out of memory
    or time.
    """
    return _extreme(bench, clause, mode, "time", 1)


def slowest(bench: Bench, clause: Clause, mode: str) -> Judgement:
    """A takes more time than every other of the group; lengths and members as for fastest."""
    return _extreme(bench, clause, mode, "time", -1)


def least_memory(bench: Bench, clause: Clause, mode: str) -> Judgement:
    """A needs less memory than every other of the group; lengths and members as for fastest."""
    return _extreme(bench, clause, mode, "memory", 1)


def increasing(bench: Bench, clause: Clause, mode: str) -> Judgement:
    """The quantity grows from each length to the next, or from each value of an option to the next.

    Over an option its values that the sweep has are compared at each length of the claim. Every
    step's interval must lie above zero; one that lies below refutes.
    """
    return _monotone(bench, clause, mode, 1)


def decreasing(bench: Bench, clause: Clause, mode: str) -> Judgement:
    """The quantity falls at every step; lengths and options as for increasing."""
    return _monotone(bench, clause, mode, -1)


def _extreme(bench: Bench, clause: Clause, mode: str, quantity: str, sign: int) -> Judgement:
    subject, group, _ = clause.call.arguments
    assert isinstance(subject, Subject)
    assert isinstance(group, Group)
    one = bench.curve(subject, mode)
    others = [name for name in members(group) if name != subject.mechanism]
    found = {name: bench.matching(Subject(mechanism=name), mode)[:1] for name in others}
    rivals = [curve for curves in found.values() for curve in curves]
    if not rivals:
        raise OutOfScope(f"the sweep has no other of {group}")
    parts, told = list[pd.DataFrame](), list[Number]()
    for rival in rivals:
        ends = (rival, one) if sign > 0 else (one, rival)
        parts.append(ends[0].over(ends[1], quantity))
        told += numbers(parts[-1], *ends, quantity, mode)
    rows = pd.concat(parts)
    at = chosen(clause.lengths, sorted({int(n) for n in rows.index}))
    whole = [n for n in at if all(_ended(rival, n, quantity) for rival in rivals)]
    some = _at(rows, told, at, clause)
    if some.answer is Answer.NOT_REPRODUCED:
        return some
    if not whole:
        why = "no length at which the whole group was measured"
        return replace(some, answer=Answer.CANNOT_TELL, why=why)
    judged = _at(rows, told, whole, clause)
    missing = [name for name, curves in found.items() if not curves]
    if missing and judged.answer is Answer.REPRODUCED:
        why = f"not in the sweep: {', '.join(missing)}"
        return replace(judged, answer=Answer.CANNOT_TELL, why=why)
    return judged


def _at(rows: pd.DataFrame, told: list[Number], lengths: list[int], clause: Clause) -> Judgement:
    kept = rows.index.isin(lengths)
    numbers = [number for number, keep in zip(told, kept, strict=True) if keep]
    return everywhere(rows[kept], numbers, clause.lengths)


def _ended(curve: Curve, length: int, quantity: str) -> bool:
    """Whether a curve was measured at a length, or ran out of memory or time there."""
    if length in curve.logs(quantity).index:
        return True
    ended = (Outcome.OOM, Outcome.TIMEOUT)
    return length in curve.rows.index and curve.rows["outcome"].loc[length] in ended


def _monotone(bench: Bench, clause: Clause, mode: str, sign: int) -> Judgement:
    inner, over = clause.call.arguments
    assert isinstance(inner, Call)
    if over == "length":
        return _along_lengths(bench, clause, inner, mode, sign)
    return _along_option(bench, clause, inner, str(over), mode, sign)


def _along_lengths(bench: Bench, clause: Clause, inner: Call, mode: str, sign: int) -> Judgement:
    a, b, quantity = pair(bench, inner, mode)
    a, b = (a, b) if inner.name == "ratio" else (b, a)
    found = log_ratios(a, b, quantity, clause.lengths)
    before = found.shift()
    steps = interval(
        pd.DataFrame(
            {
                "y": sign * (found["y"] - before["y"]),
                "se": np.hypot(found["se"], before["se"]),
                "df": np.fmin(found["df"], before["df"]),
            }
        )
    )
    # nothing comes before the first length, so that no step can fail there
    steps.loc[steps.index[0], ["low", "high"]] = np.inf
    return everywhere(steps, numbers(found, a, b, quantity, mode), clause.lengths)


def _along_option(
    bench: Bench, clause: Clause, inner: Call, option: str, mode: str, sign: int
) -> Judgement:
    subject, quantity = inner.arguments[0], quantity_of(inner)
    assert isinstance(subject, Subject)
    curves = list(_variants(bench, subject, option, mode))
    if len(curves) < 2:
        raise OutOfScope(f"the sweep has not two values of {option} of {subject.mechanism}")
    # B is the same on either side of a step, so that it cancels
    flip = sign if inner.name == "ratio" else -sign
    parts, told = list[pd.DataFrame](), list[Number]()
    for (_, one), (_, other) in pairwise(curves):
        ends = (other, one) if flip > 0 else (one, other)
        part = log_ratios(*ends, quantity, clause.lengths)
        parts.append(part)
        told += numbers(part, *ends, quantity, mode)
    return everywhere(pd.concat(parts), told, clause.lengths)


def _variants(
    bench: Bench, subject: Subject, option: str, mode: str
) -> Iterator[tuple[float, Curve]]:
    """The best curve for each number that the subject allows for an option, smallest first."""
    allowed = dict(subject.options).get(option)
    others = tuple(pair for pair in subject.options if pair[0] != option)
    bare = replace(subject, options=others)
    seen: dict[float, Curve] = {}
    for curve in bench.matching(bare, mode):
        value: Option = curve.options.get(option)
        if isinstance(value, int | float) and (allowed is None or value in allowed):
            seen.setdefault(value, curve)
    yield from sorted(seen.items())
