"""Measuring a request into a journal: what a sweep keeps beside its runs, and who may refuse."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from attnbench.errors import DifferentSweep
from attnbench.records import Outcome, Part, Run, Shard
from attnbench.records.storage import schema
from attnbench.records.storage.journal import FILE, load
from attnbench.running import session as measuring
from attnbench.running.plan import Plan
from attnbench.running.request import requests
from tests import sweeps
from tests.commands.sweeping.cluster.shards import FACTS
from tests.running.sessions import PLAN, REQUEST


def test_an_interrupted_sweep_says_so_and_keeps_the_options_that_it_began_with(
    tmp_path, monkeypatch
):
    def stop(*what, **how):
        raise KeyboardInterrupt

    monkeypatch.setattr(measuring, "environment", lambda *about: sweeps.environment())
    monkeypatch.setattr(measuring, "make_visits", stop)
    for options in (b"rounds = 3", b"rounds = 4"):
        plan = Plan(cases=PLAN, cards=FACTS)
        with pytest.raises(KeyboardInterrupt):
            measuring.measure(REQUEST, plan, None, tmp_path, options_file=options)
    assert (tmp_path / requests.FILE).read_bytes() == b"rounds = 3"
    *_, last = (tmp_path / FILE).read_bytes().splitlines()
    entry = schema.unseal(last)
    assert (entry.kind, entry.data["outcome"]) == ("end", "interrupted")


def test_a_caller_may_refuse_a_machine_before_a_journal_begins(tmp_path, monkeypatch):
    def refuse(here):
        raise DifferentSweep(f"not on {here.processor}")

    here = sweeps.environment()
    monkeypatch.setattr(measuring, "environment", lambda *about: here)
    with pytest.raises(DifferentSweep, match=here.processor):
        measuring.measure(
            REQUEST, Plan(cases=PLAN, cards=FACTS), None, tmp_path / "new", before=refuse
        )
    assert not (tmp_path / "new").exists()


def test_code_that_has_changed_is_not_measured_into_the_same_sweep(tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "environment", lambda *about: sweeps.environment())
    monkeypatch.setattr(measuring, "make_visits", lambda *agenda, **how: None)

    def measure(code):
        cards = tuple(replace(card, code=code) for card in FACTS)
        measuring.measure(REQUEST, Plan(cases=PLAN, cards=cards), None, tmp_path).close()

    measure("one")
    measure("one")
    measure("")  # which cannot be read
    written = (tmp_path / FILE).read_bytes()
    with pytest.raises(DifferentSweep, match=r"the code of \w+ is not that which was measured"):
        measure("another")
    assert (tmp_path / FILE).read_bytes() == written, "no session of what was refused"


@pytest.mark.parametrize(
    ("allowed", "threads", "by_pace", "spare"),
    [(4, 4, False, 0), (8, 4, False, 64), (1, 1, True, 0), (2, 1, True, 63)],
)
def test_no_core_is_spare_where_a_container_s_limit_leaves_none(
    allowed, threads, by_pace, spare, monkeypatch
):
    pace = SimpleNamespace(core=0) if by_pace else None
    monkeypatch.setattr(measuring, "cores", lambda: allowed)
    monkeypatch.setattr(type(measuring.SYSTEM), "cores", lambda self: frozenset(range(64)))
    assert len(measuring.spare_cores(threads, pace)) == spare


def test_of_a_share_only_its_cases_are_measured_and_its_journal_says_which(tmp_path, monkeypatch):
    agendas = []
    monkeypatch.setattr(measuring, "environment", lambda *about: sweeps.environment())
    monkeypatch.setattr(measuring, "make_visits", lambda agenda, *_, **how: agendas.append(agenda))
    share = measuring.Share(shard=Shard(2, 3), cases=PLAN[:2])
    plan = Plan(cases=PLAN, cards=FACTS)
    measuring.measure(REQUEST, plan, None, tmp_path, share=share, options_file=b"rounds = 3")
    assert agendas[0].plan == PLAN[:2]
    stored = load(tmp_path)
    assert stored.shard == Shard(2, 3)
    assert stored.plan == PLAN, "so that shards can be merged"
    assert not (tmp_path / requests.FILE).exists(), "those of the fleet lie beside it"


def test_what_ran_out_of_memory_is_tried_again_until_it_has_run_with_more(tmp_path, monkeypatch):
    full = Run(case=PLAN[0].case.key, part=Part.TIME, round=0, outcome=Outcome.OOM, elapsed_s=1.0)
    done = []

    def visits(agenda, start, append, **how):
        done.append([run.outcome for run in agenda.earlier])
        if len(done) == 1:
            append(full)

    monkeypatch.setattr(measuring, "environment", lambda *about: sweeps.environment())
    monkeypatch.setattr(measuring, "make_visits", visits)
    for limit_gib in (1, 1, 8, 8):
        settings = replace(REQUEST.settings, memory_limit_bytes=limit_gib << 30)
        request = replace(REQUEST, settings=settings)
        measuring.measure(request, Plan(cases=PLAN, cards=FACTS), None, tmp_path).close()
    assert done == [[], [Outcome.OOM], [], []]
