"""What runs next and what no longer fits; pure functions of predictions and results."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from attnbench import units
from attnbench.records import Case, Outcome, Planned, Run, Settings

START_S = 0.4  # from asking for a process to its first iteration, beside building the module
MARGIN = 1.1  # of memory, over a prediction


def run_cost(iteration_s: float, settings: Settings) -> float:
    """Seconds of one timed run: the checked iteration, the rest of the warm-up, the samples."""
    warm = min(max(0.0, settings.warmup_s - iteration_s), 10 * iteration_s)
    samples = max(settings.sample_s, settings.min_samples * iteration_s)
    return START_S + iteration_s + warm + samples


def case_cost(iteration_s: float, settings: Settings, rounds: int) -> float:
    """Seconds of everything that one case still takes: its rounds, and its memory once."""
    return rounds * run_cost(iteration_s, settings) + 2 * START_S + 1.3 * iteration_s


def shuffled(cases: Iterable[Planned], seed: int, round_: int) -> list[Planned]:
    """A later round's order: drift of the machine falls on all alike."""
    found = list(cases)
    random.Random(f"{seed}-{round_}").shuffle(found)
    return found


def blocked(case: Case, ended: Sequence[tuple[Case, Run]]) -> str:
    """Why a case is not tried after what happened at a shorter length, or nothing."""
    for other, run in ended:
        shorter = other.workload.seq_len < case.workload.seq_len
        if shorter and family(other) == family(case) and run.outcome in ENDS:
            happened = "ran out of memory" if run.outcome is Outcome.OOM else "timed out"
            return f"not run: already {happened} at N = {units.length(other.workload.seq_len)}"
    return ""


# a prediction ends no curve: each longer case has a prediction of its own
ENDS = frozenset({Outcome.OOM, Outcome.TIMEOUT})


def too_large(needed_bytes: float, limit_bytes: float) -> str:
    """Why a case that would not fit into memory is not run."""
    return (
        f"would exceed the memory limit ({units.size(limit_bytes)}):"
        f" predicted {units.size(needed_bytes)}"
    )


def too_long(iteration_s: float, run_s: float, limit_s: float) -> str:
    """Why a case that one process could not finish within its limit is not run."""
    return (
        f"would exceed --case-timeout ({units.seconds(limit_s)}):"
        f" predicted {units.seconds(iteration_s)} per iteration, {units.seconds(run_s)} per run"
    )


def too_dear(iteration_s: float, case_s: float, left_s: float) -> str:
    """Why a case that the rest of the budget cannot pay is not run."""
    return (
        f"would exceed --budget ({units.seconds(left_s)} left):"
        f" predicted {units.seconds(iteration_s)} per iteration, {units.seconds(case_s)} in all"
    )


def family(case: Case) -> Case:
    """What the lengths of one curve have in common."""
    return replace(case, workload=replace(case.workload, batch=1, seq_len=1))
