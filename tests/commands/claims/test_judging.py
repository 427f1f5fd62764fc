"""How a sweep with known costs judges claims."""

import re
from dataclasses import replace

import pytest

from attnbench.analysis.report import analyse
from attnbench.analysis.statistics.ratios import Ratios
from attnbench.commands.claims.claim import read_claims
from attnbench.commands.claims.judging import judge_claim
from attnbench.records import Mode, Outcome, Part
from tests.sweeps import altered, sweep

SERIES = ("fastformer", "linformer", "transformer")
LENGTHS = tuple(2**power for power in range(7, 14))


@pytest.fixture(scope="module")
def lab():
    """Seconds of a token: 1.1 and 1.5 µs, and of the Transformer 1.6 µs and 1.5 ns times N."""
    return analyse(sweep(SERIES, lengths=LENGTHS, noise=0.01, restart=0.01))


def judged(analysis, *checks: str, mode="inference"):
    """What a claim of these checks is found to be: `less,a,b,quantity,lengths,value`."""
    head, rows = "id,claim,predicate,a,b,quantity,lengths,value,mode\n", []
    for check in checks:
        rows.append(f"one,{'C.' if not rows else ''},{check},{mode}\n")
    (claim,) = read_claims(head + "".join(rows), "mine.csv")
    return judge_claim(analysis, claim).conclusion


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        ("less,fastformer,linformer,time,>= 512,", "reproduced"),
        ('less,fastformer,"linformer,transformer",time,longest >= 4096,', "reproduced"),
        ("less,linformer,fastformer,time,>= 512,", "contradicted"),
        ("less,linformer,fastformer,time,,2", "reproduced"),
        ("less,fastformer,linformer,time,>= 4096,", "not known"),  # at two lengths alone
        ("less,fastformer,linformer,time,longest >= 16384,", "not known"),
        ("less,fastformer,linformer,memory,>= 512,0.5", "contradicted"),
        ('less,fastformer,"linformer,performer",time,>= 512,', "not known"),
        ("less,performer,linformer,time,,", "not known"),
        ("less,fastformer:folded,linformer,time,,", "not known"),
        ("less,fastformer[bias=false],linformer[bias=true],time,,", "not known"),
        ("less,fastformer[bias=false],linformer,time,>= 512,", "reproduced"),
        ("ratio,transformer,fastformer,time,8192,12", "reproduced"),
        ("ratio,transformer,fastformer,time,8192,>= 30", "contradicted"),
        ("ratio,transformer,fastformer,time,8192,12.6..13", "not known"),
        ("exponent,transformer,,core_flops,,2", "true of exact counts"),
        ("exponent,transformer,,core_flops,,1", "contradicted"),
        ('exponent,"fastformer,linformer",,time,,1', "reproduced"),
        ("exponent,transformer,,time,,2", "not known"),  # it still bends
        ("crossover,transformer,linformer,,,<= 512", "reproduced"),
        ("crossover,transformer,linformer,,,>= 1024", "contradicted"),
        ("crossover,fastformer,transformer,,,<= 512", "contradicted"),
        ("crossover,fastformer,transformer,,,>= 512", "reproduced"),
        ("crossover,fastformer,transformer,,,16384", "not known"),
    ],
)
def test_answers(lab, check, answer):
    assert judged(lab, check).answer == answer


def test_a_crossing_may_begin_before_the_shortest_length():
    """At 1,600 tokens both take the same time."""
    near = analyse(sweep(("transformer", "longformer"), lengths=(1600, 3200, 6400)))
    assert judged(near, "crossover,transformer,longformer,,,1600..4096").answer == "not known"
    assert judged(near, "crossover,transformer,longformer,,,<= 4096").answer == "reproduced"


def test_what_is_faster_at_first_is_told_from_where_it_is_not(lab):
    """Transformer and Linformer cross between 128 tokens, where the first is faster, and 8,192."""
    crossing = analyse(sweep(("transformer", "longformer"), lengths=LENGTHS))
    found = judged(crossing, "crossover,longformer,transformer,,,<= 512")
    assert found.answer == "contradicted"
    assert re.search(r": not above 1 from (2,048|4,096) up to 8,192", found.reason), found.reason


def test_all_checks_must_hold(lab):
    true, false = "less,fastformer,linformer,time,>= 512,", "less,linformer,fastformer,time,,"
    counted, lost = "exponent,transformer,,core_flops,,2", "exponent,performer,,time,,1"
    assert judged(lab, true, false).answer == "contradicted"
    assert judged(lab, true, counted).answer == "true of exact counts"
    assert judged(lab, true, lost).answer == "not known"
    assert "performer" in judged(lab, true, lost).reason
    assert judged(lab, true, mode="decode").answer == "not known"
    assert judged(lab, true, mode="").answer == "reproduced"


def test_the_evidence_is_what_comes_closest_to_refuting_the_claim(lab):
    found = judged(lab, 'less,fastformer,"linformer,transformer",time,longest >= 4096,')
    assert found.reason.startswith("time of fastformer:eager over linformer:eager, inference 0.7")
    assert "at 8,192; and 1 more" in found.reason
    assert found.scope.lengths == (8192,)


def test_a_time_is_judged_only_where_it_was_measured(lab):
    lost = [
        replace(run, outcome=Outcome.SKIPPED, samples=())
        if run.case in {p.case.key for p in lab.sweep.plan if p.case.mechanism == "transformer"}
        else run
        for run in lab.sweep.runs
        if run.part is Part.TIME
    ]
    untimed = analyse(replace(lab.sweep, runs=tuple(lost)))
    for check in ("exponent,transformer,,time,,2", "less,fastformer,transformer,time,,"):
        assert judged(untimed, check).answer == "not known"
    assert judged(untimed, "exponent,transformer,,core_flops,,2").answer.startswith("true of")


def test_no_claim_is_judged_by_times_that_include_launches(lab):
    shown = analyse(altered(lab.sweep, lambda run: replace(run, notes={"launches": "seen"})))
    assert judged(shown, "less,fastformer,linformer,time,>= 512,").answer == "not known"
    assert judged(shown, "less,fastformer,transformer,memory,,").answer == "reproduced"


def test_ratios_of_laps_taken_in_turns_are_judged(monkeypatch, lab):
    asked = []
    usual = Ratios.in_turns
    monkeypatch.setattr(Ratios, "in_turns", lambda *a: asked.append(a[2:]) or usual(*a))
    judged(lab, "less,fastformer,linformer,time,,")
    judged(lab, "less,fastformer,linformer,memory,,")
    assert asked == [("fastformer:eager", "linformer:eager", str(Mode.INFERENCE))]
