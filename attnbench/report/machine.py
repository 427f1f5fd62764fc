"""Sentences on a machine: by what it times, and what makes its times noisy."""

from collections.abc import Iterator

from attnbench.records import LOST, OTHERS, Clock, Environment, units

LACKING = "this system does not offer what measuring uses on Linux: {}"
ENOUGH = 0.8  # share of the time it needs below which a process is clearly slowed down


def clock_of(here: Environment, clock: Clock) -> str:
    """The number of threads, and on a CPU the clock: `CPU time on one core`."""
    if here.device_memory_bytes is not None:
        return units.many(here.threads, "thread")
    return clock_text(clock, here.threads)


def clock_text(clock: Clock, threads: int) -> str:
    """`CPU time on one core`, or `wall time on 4 threads`."""
    return f"{clock} on {'one core' if clock is Clock.CPU else units.many(threads, 'thread')}"


def noise_warnings(here: Environment, clock: Clock, budget_s: float | None = None) -> Iterator[str]:
    """Warnings: what will make times on this machine noisier than necessary, or fewer."""
    cores = units.many(here.cores, "core")
    threads = units.many(here.threads, "thread")
    if lost := here.notes.get(LOST):
        yield LACKING.format(lost)
    if here.threads > here.cores:
        yield f"{threads} share {cores}; try --threads {here.cores}"
    if others := here.notes.get(OTHERS):
        yield f"other processes use the GPU ({others}), and times will be noisy"
    if here.share is not None and here.share < ENOUGH:
        so = "measuring will take longer" if clock is Clock.CPU else "times will be noisy"
        if clock is Clock.CPU and budget_s is not None:
            reach = f"what {budget_s:g} s reach on a quiet machine"
            so = f"expect about {10 * max(1, round(10 * here.share))} % of {reach}"
        got = f"a process gets {units.percent(here.share)} of the time it needs"
        yield f"{slowed_by(here, here.share)}; {got}; {so}"


def slowed_by(here: Environment, share: float) -> str:
    """What keeps a process from computing, of which it has this `share` of the time."""
    others = "other processes compute here"
    if here.quota_cores is None:
        return others
    quota = f"a CPU quota of {here.quota_cores:g} cores (of this container or service) stops it"
    alone = min(1.0, here.quota_cores)  # what a process would get with nothing beside it
    return f"{quota}, and {others}" if share < ENOUGH * alone else quota
