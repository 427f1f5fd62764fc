"""What papers assert, judged by what a sweep measured."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from attnbench.claims import costs as costs
from attnbench.claims import groups as groups
from attnbench.claims import growth as growth
from attnbench.claims import limits as limits
from attnbench.claims.bench import Bench, OutOfScope
from attnbench.claims.claim import Asked, Call, Clause, Group, Subject
from attnbench.claims.data import Claim
from attnbench.claims.names import forms, members
from attnbench.claims.outcome import Answer, Judgement, agreed, joined
from attnbench.records import Sweep

# where the definition of each predicate of the grammar stands
DEFINITIONS: Mapping[str, Callable[[Bench, Clause, str], Judgement]] = MappingProxyType(
    {
        "faster": costs.faster,
        "less_memory": costs.less_memory,
        "same": costs.same,
        "speedup": costs.ratio,
        "memory_saving": costs.ratio,
        "ratio": costs.ratio,
        "growth": costs.growth,
        "fastest": groups.fastest,
        "slowest": groups.slowest,
        "least_memory": groups.least_memory,
        "increasing": groups.increasing,
        "decreasing": groups.decreasing,
        "crossover": growth.crossover,
        "order": growth.order,
        "slope": growth.order,
        "maps_over_core": growth.maps_over_core,
        "oom": limits.oom,
        "fits": limits.fits,
        "max_length": limits.max_length,
        "throughput": limits.throughput,
        "no_causal_form": limits.no_causal_form,
    }
)

# what is counted or stored is the same in every mode, so that one mode speaks for all
COUNTED = ("core_flops", "projection_flops")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim with what a sweep says of it."""

    claim: Claim
    judgement: Judgement


def judge(sweep: Sweep, claims: Sequence[Claim]) -> tuple[Judged, ...]:
    """Each claim as reproduced, not reproduced, cannot tell, or out of scope, in their order."""
    bench = Bench(sweep)
    return tuple(Judged(claim=claim, judgement=_judgement(bench, claim)) for claim in claims)


def wanted(claims: Sequence[Claim]) -> tuple[str, ...]:
    """What a sweep must measure to speak of every claim, as `--models` takes it, sorted.

    Options that a check names are left out.
    """
    clauses = [each for claim in claims for c in claim.check.clauses for each in c.expanded]
    names = {name for clause in clauses for name in _models(clause.call)}
    formed = {name.partition(":")[0] for name in names if ":" in name}
    return tuple(sorted(names - formed))


def _models(call: Call) -> Iterator[str]:
    for argument in call.arguments:
        match argument:
            case Subject(mechanism=mechanism):
                its = forms(argument)
                yield f"{mechanism}:{its[0]}" if its else mechanism
            case Group():
                yield from members(argument)
            case Call():
                yield from _models(argument)


def _judgement(bench: Bench, claim: Claim) -> Judgement:
    expanded = [clause for whole in claim.check.clauses for clause in whole.expanded]
    return joined([_clause(bench, clause) for clause in expanded])


def _clause(bench: Bench, clause: Clause) -> Judgement:
    try:
        _in_scope(bench, clause)
        modes = _modes(bench, clause)
    except OutOfScope as reason:
        return Judgement(answer=Answer.OUT_OF_SCOPE, why=str(reason))
    return agreed([_in_mode(bench, clause, mode) for mode in modes])


def _in_mode(bench: Bench, clause: Clause, mode: str) -> Judgement:
    try:
        return DEFINITIONS[clause.call.name](bench, clause, mode)
    except OutOfScope as reason:
        return Judgement(answer=Answer.OUT_OF_SCOPE, why=str(reason))


def _in_scope(bench: Bench, clause: Clause) -> None:
    """Raises `OutOfScope` if the sweep has another level or device than the claim asks for."""
    if clause.level is not None and clause.level is not bench.level:
        raise OutOfScope(f"it speaks of level {clause.level}, the sweep has {bench.level}")
    if clause.device is not None and clause.device.lower() not in bench.device.lower():
        raise OutOfScope(f"it is bound to {clause.device}, the sweep ran on {bench.device}")


def _modes(bench: Bench, clause: Clause) -> tuple[str, ...]:
    asked = next(_asked(clause.call), None)
    if asked is not None:
        return bench.modes(asked)
    modes = bench.modes(Asked.UNPRINTED)
    exact = clause.call.name in ("maps_over_core", "no_causal_form")
    counted = exact or clause.call.arguments[-1] in COUNTED
    return modes[-1:] if counted else modes


def _asked(call: Call) -> Iterator[Asked]:
    for argument in call.arguments:
        if isinstance(argument, Asked):
            yield argument
        elif isinstance(argument, Call):
            yield from _asked(argument)
