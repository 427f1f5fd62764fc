"""When odd behaviour is looked for, and what a much faster round says of it."""

from dataclasses import replace

import pytest

from attnbench.records import Clock, Disturbance, Outcome, Part, Run, Sample
from attnbench.running.agenda import Agenda
from attnbench.running.suspicion import is_suspicious, with_sign
from tests.doubles.machine import Machine
from tests.running.sessions import PLAN, REQUEST, planned, slow_is, sweep


def test_odd_behaviour_is_looked_for_until_there_was_time_for_it_and_at_much_longer_lengths():
    ends = iter(["unexamined"] * 2 + ["examined"] * 99)

    def fate(case, do):
        finished = {"outcome": "ok", "needs_new_process": False, "values": {}, "notes": {}}
        looked = do == "finish" and machine.builds[-1].suspicious
        return {**finished, "notes": {next(ends): "yes"}} if looked else None

    machine = Machine(fate=fate)
    sweep(machine, (PLAN[0],), replace(REQUEST, rounds=4))
    assert [asked.suspicious for asked in machine.builds] == [True] * 4, "in every process"
    machine = Machine(fate=fate)
    sweep(machine, [planned("a", n, 10**8) for n in (128, 256, 512, 1024, 2048)])
    looks = [asked.suspicious for asked in machine.builds]
    assert looks[:5] == [True, False, True, False, True]
    lengths = [asked.workload.seq_len for asked in machine.builds]
    assert looks[5:] == [length == 128 for length in lengths[5:]], "and then at the shortest"
    machine = Machine()
    sweep(machine, (replace(PLAN[0], own=True),))
    assert not any(asked.suspicious for asked in machine.builds), "tests look for it"


def test_long_iterations_are_not_examined_again():
    machine = Machine(slow_is(0.2))
    sweep(machine, (PLAN[0],), replace(REQUEST, rounds=3))
    assert [asked.suspicious for asked in machine.builds] == [True, False, False]


@pytest.mark.parametrize(
    ("first_s", "later_s", "said"),
    [
        (0.01, 0.0099, ""),
        (0.01, 0.004, ""),  # by what caches, clocks and other programs may change
        (0.01, 0.02, ""),
        (0.01, 0.0004, "took more than 3 times as long in the first round as in a later one"),
    ],
)
def test_what_is_much_faster_in_a_later_round_is_suspect(first_s, later_s, said):
    agenda = Agenda(request=REQUEST, plan=PLAN, memory_bytes=1e12)
    line = PLAN[0]

    def learned(round_, each_s, **more):
        samples = tuple(
            Sample(1, each_s, each_s, None, each_s, 0.0, 0.0, lap=lap, clock=Clock.CPU)
            for lap in range(4)
        )
        samples = tuple(sample._replace(**more) for sample in samples)
        run = Run(case=line.case.key, part=Part.TIME, round=round_, outcome=Outcome.OK)
        agenda.record([line], [replace(run, samples=samples)])
        return agenda.runs[run.case][round_].notes.get("suspect", "")

    assert learned(0, first_s) == ""
    assert learned(1, later_s) == said
    assert learned(2, later_s, clock=Clock.WALL) == "", "others may have slowed the first"
    assert learned(3, later_s, disturbed=Disturbance.FAULTS) == ""
    agenda = Agenda(request=REQUEST, plan=[replace(line, own=True)], memory_bytes=1e12)
    line = agenda.plan[0]
    assert learned(0, first_s) == learned(1, later_s) == ""


def curve(*lengths, examined=(), failed=()):
    """Runs of some lengths of one curve, with their workloads."""
    for n in lengths:
        outcome = Outcome.FAILED if n in failed else Outcome.OK
        notes = {"examined": "here"} if n in examined else {}
        run = Run(case="", part=Part.TIME, round=0, outcome=outcome, notes=notes)
        yield planned("a", n, 1).case.workload, run


@pytest.mark.parametrize(
    ("length", "runs", "looks"),
    [
        (128, {"lengths": ()}, True),
        (256, {"lengths": (128,)}, True),  # it was not looked for there
        (256, {"lengths": (128,), "examined": (128,)}, False),
        (512, {"lengths": (128, 256), "examined": (128,)}, True),  # four times as long
        (512, {"lengths": (128, 256), "examined": (128, 256)}, False),
    ],
)
def test_in_the_first_round_it_is_looked_for_from_four_times_the_longest_examined(
    length, runs, looks
):
    told = {"is_later_round": False, "iteration_s": 99.0, "samples_s": 1.0}
    found = curve(*runs["lengths"], examined=runs.get("examined", ()))
    assert is_suspicious(planned("a", length, 1), [*found], **told) == looks


@pytest.mark.parametrize(
    ("length", "iteration_s", "failed", "looks"),
    [
        (128, 0.1, (), True),
        (256, 0.1, (), False),
        (256, 0.1, (128,), True),  # the shortest that was timed
        (128, 0.2, (), False),  # longer than an eighth of the samples
    ],
)
def test_in_later_rounds_it_is_looked_for_at_the_shortest_length_that_is_short(
    length, iteration_s, failed, looks
):
    told = {"is_later_round": True, "iteration_s": iteration_s, "samples_s": 1.0}
    found = [*curve(128, 256, examined=(128,), failed=failed)]
    assert is_suspicious(planned("a", length, 1), found, **told) == looks
    assert not is_suspicious(replace(planned("a", length, 1), own=True), found, **told)


def test_a_sign_is_added_to_those_that_a_run_has_and_once():
    def ran(round_, each_s, signs=""):
        samples = (Sample(1, each_s, each_s, None, each_s, 0.0, 0.0, clock=Clock.CPU),) * 2
        notes = {"suspect": signs} if signs else {}
        about = {"case": "", "part": Part.TIME, "outcome": Outcome.OK}
        return Run(**about, round=round_, samples=samples, notes=notes)

    first, later = ran(0, 1.0), ran(1, 0.1, "it sleeps")
    found = with_sign(first, later)
    sign = "took more than 3 times as long in the first round as in a later one"
    assert found.notes["suspect"] == f"it sleeps; {sign}"
    assert with_sign(first, found) == found
    assert with_sign(None, later) is later
    assert with_sign(replace(first, samples=first.samples[:1]), later) is later, "one lap is few"
