"""Which cases fit into memory together: the races of a block, and what idle processes may keep."""

from collections.abc import Callable, Iterable, Sequence

from attnbench.analysis.costs import CostKind
from attnbench.records import Planned
from attnbench.running.agenda import Agenda

KEPT = 0.2  # share of memory that the processes of a race may keep for the next one


def races(agenda: Agenda, cases: Sequence[Planned]) -> list[list[Planned]]:
    """The races of some cases of a block: one if memory allows, otherwise several.

    Processes of one race need not end for another.
    """
    link = agenda.link(cases[0].block)
    needed = agenda.costs.needed_bytes
    return groups(cases, needed, shared_bytes(agenda), agenda.memory_bytes, link)


def shared_bytes(agenda: Agenda) -> float:
    """Memory that cases may need together, without what idle processes take of a device."""
    contexts = sum(map(agenda.costs.context_of, set(agenda.costs.series.values())))
    return agenda.device.shared * agenda.memory_bytes - contexts


def fit_together(agenda: Agenda, cases: Iterable[Planned]) -> bool:
    """Whether these cases fit into memory at once."""
    return sum(map(agenda.costs.needed_bytes, cases)) <= shared_bytes(agenda)


def groups(
    cases: Sequence[Planned],
    need: Callable[[Planned], float],
    room: float,
    memory_bytes: float,
    link: Planned | None = None,
) -> list[list[Planned]]:
    """The races of a block: one if memory allows, otherwise several that share the link.

    cases:        of the block
    need:         bytes that a case needs
    room:         bytes that the cases of a race may need together
    memory_bytes: all that there is; what does not fit into it beside the link runs alone
    link:         the case that has raced before; None: the one that needs least
    """
    others_by_need = sorted(cases, key=need)
    has_raced = link is not None
    if link is None:
        link, *others_by_need = others_by_need
    race_groups = [[link]]
    for planned in others_by_need:
        if need(link) + need(planned) > memory_bytes:
            race_groups.append([planned])
        elif len(last := race_groups[-1]) > 1 and sum(map(need, last)) + need(planned) > room:
            race_groups.append([link, planned])
        else:
            last.append(planned)
    return [group for group in race_groups if not has_raced or group != [link]]


def can_wait(agenda: Agenda, planned: Planned) -> bool:
    """Whether the memory of a case can be measured beside races, and later ones do not need it.

    What nobody knows of its bytes decides which longer cases are tried.
    """
    return not (is_crowded(agenda, planned) or agenda.costs.is_unknown(planned, CostKind.BYTES))


def is_crowded(agenda: Agenda, planned: Planned) -> bool:
    """Whether a case needs the memory that idle processes may keep, contexts included."""
    return agenda.costs.needed_bytes(planned) > (1 - KEPT) * agenda.memory_bytes


def keep_too_much(agenda: Agenda, cases: Iterable[Planned]) -> bool:
    """Whether the heaps that these cases leave are more than their processes may keep."""
    kept_bytes = sum(agenda.costs.predicted(CostKind.BYTES, planned) for planned in cases)
    return not agenda.device.gpus and kept_bytes > KEPT * agenda.memory_bytes
