"""What runs next, in which races and how often: pure functions of predictions and results."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from attnbench import units
from attnbench.records import Case, Cause, Outcome, Part, Planned, Run, Settings
from attnbench.run.turns import Turns
from attnbench.statistics.curves import series_names

# seconds of a process without its iterations, before any was measured: building the module and
# its inputs, and a share of starting the process
OVERHEAD_S = MappingProxyType({Part.TIME: 0.15, Part.MEMORY: 0.5})
COMPILE_S = 20.0  # loading and running torch.compile, before a series has been compiled
MEMORY_ITERATIONS = 1.3  # cost of an iteration under the profiler and of the small ones
ENERGY_S = 4.0  # further seconds of a visit that also measures energy
MARGIN = 1.1  # memory kept free, relative to the prediction
FRAGMENTED = 2.5  # a heap that keeps freed pages, relative to the largest allocation
KEPT = 0.3  # share of memory that all processes of a round may keep for their next cases
MOST_PAIRS = 6  # pairs of laps; more would only make samples shorter
REHEARSED_S = 0.1  # of a shorter iteration, the first one of a lap takes up to 1.2 times as long
# a measured outcome excludes longer lengths; a predicted one does not
ENDS = frozenset({Outcome.OOM, Outcome.TIMEOUT})


class Refusal(NamedTuple):
    """Why a case is not run."""

    cause: Cause
    reason: str


def turns(iteration_s: float, settings: Settings) -> Turns:
    """How often a case runs in one race: at least one pair of laps, of one iteration each.

    The time of samples includes their rehearsals.
    """
    rehearsed = iteration_s < REHEARSED_S
    lap_s = max((1 + rehearsed) * iteration_s, settings.interval_s, 1e-9)
    pairs = min(MOST_PAIRS, max(1, round(settings.sample_s / (2 * lap_s))))
    wanted_s = max(settings.interval_s, settings.sample_s / (2 * pairs))
    iterations = max(1, round(wanted_s / max(iteration_s, 1e-9)) - rehearsed)
    return Turns(pairs=pairs, iterations=iterations, rehearsed=rehearsed)


def warm_s(iteration_s: float, settings: Settings) -> float:
    """Seconds of the first iteration and the warm-up."""
    return iteration_s + min(max(0.0, settings.warmup_s - iteration_s), 10 * iteration_s)


def visit_s(
    iteration_s: float,
    settings: Settings,
    overhead_s: float = OVERHEAD_S[Part.TIME],
    stretch: float = 1.0,
) -> float:
    """Seconds of one visit to a case: build, warm-up and laps.

    `stretch` is the wall time of an iteration over `iteration_s`.
    """
    laps_s = turns(iteration_s, settings).total * iteration_s
    return overhead_s + stretch * (warm_s(iteration_s, settings) + laps_s)


def memory_s(iteration_s: float, overhead_s: float = OVERHEAD_S[Part.MEMORY]) -> float:
    """Seconds of measuring the memory of a case."""
    return overhead_s + MEMORY_ITERATIONS * iteration_s


def groups(
    cases: Sequence[Planned],
    needed: Callable[[Planned], float],
    room: float,
    memory_bytes: float,
    anchor: Planned | None = None,
) -> list[list[Planned]]:
    """The races of a block: one if memory allows, otherwise groups that share the anchor.

    A race may use `room` of the memory. The `anchor` has raced before; without one it is the case
    that needs least. A case that does not fit into memory together with it runs alone.
    """
    rest, has_raced = sorted(cases, key=needed), anchor is not None
    if anchor is None:
        anchor, *rest = rest
    groups: list[list[Planned]] = []
    used: list[float] = []
    for planned in rest:
        for index, group in enumerate(groups):
            if used[index] + needed(planned) <= room:
                group.append(planned)
                used[index] += needed(planned)
                break
        else:
            alone = needed(anchor) + needed(planned) > memory_bytes
            groups.append([planned] if alone else [anchor, planned])
            used.append(room if alone else needed(anchor) + needed(planned))
    if not has_raced and not any(anchor in group for group in groups):
        groups.insert(0, [anchor])
    return groups


def kept_bytes(plan: Sequence[Planned], memory_bytes: float) -> float:
    """Bytes of freed pages that each series' process may keep between its cases."""
    return KEPT * memory_bytes / len(set(series_names(plan).values()))


def blocked(case: Case, ended: Sequence[tuple[Case, Run]]) -> Refusal | None:
    """Why a case is not tried after a shorter length ran out of memory or time, or None."""
    for other, run in ended:
        shorter = other.workload.seq_len < case.workload.seq_len
        # of several fixed batches; c // N · N is more than c / 2
        larger = other.workload.tokens > 2 * case.workload.tokens
        if shorter and not larger and family(other) == family(case) and run.outcome in ENDS:
            oom = run.outcome is Outcome.OOM
            how_it_ended = "ran out of memory" if oom else "timed out"
            length = units.count(other.workload.seq_len)
            cause = Cause.OOM if oom else Cause.TIMEOUT
            return Refusal(cause, f"not run: already {how_it_ended} at N = {length}")
    return None


def family(case: Case) -> Case:
    """What the cases of one curve have in common, over all lengths."""
    return replace(case, workload=replace(case.workload, batch=1, seq_len=1))
