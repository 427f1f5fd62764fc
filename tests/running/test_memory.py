"""Which cases fit into memory together, and what idle processes may keep."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from attnbench.records import Outcome, Part, Run
from attnbench.running.agenda import Agenda
from attnbench.running.memory import (
    can_wait,
    fit_together,
    groups,
    is_crowded,
    keep_too_much,
    races,
)
from tests.running.sessions import GIB, RATES, REQUEST, planned

MEMORY, SHARED = 1000.0, 0.6


needs = st.lists(st.floats(0, MEMORY), min_size=1, max_size=12)


@given(needs, st.data())
def test_every_group_fits_or_is_alone_and_the_anchor_links_the_others(needs, data):
    lines = list(range(len(needs)))
    link = data.draw(st.none() | st.sampled_from(lines))
    room = SHARED * MEMORY
    waiting = [line for line in lines if line != link]
    found = groups(waiting, needs.__getitem__, room, MEMORY, link) if waiting else []
    assert link is None or [link] not in found, "it has raced before"
    if link is None:
        link = min(lines, key=needs.__getitem__)
    for group in found:
        assert len(set(group)) == len(group)
        total = sum(needs[line] for line in group)
        assert len(group) == 1 or total <= room or (len(group) == 2 and total <= MEMORY)
        assert len(group) == 1 or link in group, "every race of several has the link"
    assert set().union(*found) >= set(waiting)
    assert len(found) <= 1 or sum(needs) > room, "what fits together is one race"
    others = [line for group in found for line in group if line != link]
    assert len(others) == len(set(others)), "only the link runs more than once"
    for group in found:
        if len(group) == 1 and group != [link]:
            assert needs[link] + needs[group[0]] > MEMORY, "alone only where it must be"


def test_memory_that_a_mechanism_takes_of_a_device_by_itself_is_no_other_s():
    lines = [planned(name, n, 10**6) for name in ("a", "b") for n in (128, 256)]
    agenda = Agenda(request=REQUEST, plan=lines, memory_bytes=100 * GIB)
    for line, context in ((lines[0], GIB), (lines[2], 40 * GIB)):
        agenda.costs.learn(line, measured_context(line, context))
    sizes = [agenda.costs.needed_bytes(line) for line in lines]
    assert sizes[1] < 2 * GIB
    assert min(sizes[2:]) > 40 * GIB
    unknown = Agenda(request=REQUEST, plan=[*lines, planned("c", 128, 1)], memory_bytes=100 * GIB)
    for line, context in ((lines[2], 40 * GIB), (lines[0], GIB)):
        unknown.costs.learn(line, measured_context(line, context))
    assert unknown.costs.needed_bytes(unknown.plan[-1]) < 2 * GIB
    assert fit_together(agenda, lines[:2])


def measured_context(line, context_bytes):
    """A measurement of memory that found so much beside tensors."""
    values = {"context_bytes": float(context_bytes), "allocated_peak_bytes": 1000.0}
    return Run(
        case=line.case.key,
        part=Part.MEMORY,
        round=0,
        outcome=Outcome.OK,
        values=values,
        elapsed_s=1.0,
    )


TOLD = {"rates": RATES, "memory_bytes": 10 * GIB}


def agenda(*sizes, device="cpu"):
    """A plan of cases at one length that declare so many bytes each."""
    plan = [planned(f"m{i}", 128, 10**8, size=size) for i, size in enumerate(sizes)]
    return Agenda(request=replace(REQUEST, device=device), plan=plan, **TOLD)


def test_cases_that_fit_together_race_at_once_and_others_share_the_smallest():
    small = agenda(GIB, GIB, GIB)
    assert fit_together(small, small.plan)
    assert [{*map(str, race)} for race in races(small, small.plan)] == [{*map(str, small.plan)}]
    large = agenda(1000, 4 * GIB, 4 * GIB)
    assert not fit_together(large, large.plan)
    assert races(large, large.plan) == [[large.plan[0], each] for each in large.plan[1:]]


def test_a_case_that_needs_the_memory_of_idle_processes_is_crowded_and_does_not_wait():
    found = agenda(GIB, 8 * GIB)
    assert [is_crowded(found, each) for each in found.plan] == [False, True]
    assert [can_wait(found, each) for each in found.plan] == [True, False]


def test_the_memory_of_what_declares_nothing_is_not_put_off():
    found = agenda(GIB)
    unknown = replace(found.plan[0], declared=False)
    assert not can_wait(Agenda(request=REQUEST, plan=[unknown], **TOLD), unknown)


def test_heaps_of_a_cpu_alone_may_be_too_large_to_keep():
    for device, too_much in (("cpu", True), ("cuda", False)):
        found = agenda(GIB, GIB, GIB, device=device)
        assert keep_too_much(found, found.plan) == too_much
        assert not keep_too_much(found, found.plan[:1])
