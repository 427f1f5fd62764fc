"""When to look for odd behaviour in the code of others, and what a much faster round says of it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from attnbench.records import Clock, Outcome, Planned, Run, Sample, Workload, notes

FAR = 4  # times the longest length examined for odd behaviour, from which another one is
SHORT = 1 / 8  # share of a run's samples that an iteration to be examined again may take
# The fastest of so many laps of the first round may take so many times as long as the slowest one
# of a later round: caches, clocks and other programs change it less
LEAST_LAPS = 2
LESS = 3.0


def is_suspicious(
    planned: Planned,
    curve: Sequence[tuple[Workload, Run]],
    *,
    is_later_round: bool,
    iteration_s: float,
    samples_s: float,
) -> bool:
    """Whether to look for odd behaviour in the code of others while it is measured.

    That is once per curve, and again at lengths that are much longer; and in each later round at
    the shortest length that was timed, if it is short, since another process may do something else.

    planned:     the case to be measured
    curve:       the runs so far of all lengths of its curve, with their workloads
    is_later_round:       whether the first round is over
    iteration_s: predicted seconds of an iteration
    samples_s:   seconds of all samples of a run
    """
    if planned.own:
        return False
    length = planned.case.workload.seq_len
    if is_later_round:
        timed = (w.seq_len for w, run in curve if run.outcome is Outcome.OK)
        return iteration_s <= SHORT * samples_s and length <= min(timed, default=length)
    examined = (w.seq_len for w, run in curve if notes.Note.EXAMINED in run.notes)
    return length >= FAR * max(examined, default=0)


def with_sign(first: Run | None, run: Run) -> Run:
    """A run of a later round; suspect if it took much less than the `first` round did.

    By wall time it is not: other programs may have slowed one of the two.
    """
    if first is None or not run.round or run.outcome is not Outcome.OK:
        return run
    before_s = undisturbed_s(first.samples)
    now_s = undisturbed_s(run.samples)
    if len(before_s) < LEAST_LAPS or not now_s or min(before_s) <= LESS * max(now_s):
        return run
    sign = f"took more than {LESS:g} times as long in the first round as in a later one"
    signs = dict.fromkeys(filter(None, [*run.notes.get(notes.Note.SUSPECT, "").split("; "), sign]))
    return replace(run, notes={**run.notes, notes.Note.SUSPECT: "; ".join(signs)})


def undisturbed_s(samples: Iterable[Sample]) -> list[float]:
    """Seconds of an iteration in each lap by the device's clock or in CPU time, without laps that
    were disturbed.
    """
    clocks = (each for each in samples if each.device_s is not None or each.clock is Clock.CPU)
    return [each.seconds for each in clocks if each.disturbed is None]
