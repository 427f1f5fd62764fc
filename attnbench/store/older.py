"""What journals of earlier versions said in prose only: why a case was not started."""

from dataclasses import replace

from attnbench.records import Cause, Outcome, Run

# the first that fits; the words of every version so far
WORDS = (
    ("budget", Cause.BUDGET),
    ("memory limit", Cause.MEMORY_LIMIT),
    ("predicted to need", Cause.MEMORY_LIMIT),
    ("out of memory", Cause.OOM),
    ("--case-timeout", Cause.CASE_TIMEOUT),
    ("case limit", Cause.CASE_TIMEOUT),
    ("timed out", Cause.TIMEOUT),
    ("over the time", Cause.TIMEOUT),
)


def with_cause(run: Run) -> Run:
    """The run with the cause that its reason tells, if it was not started and names none.

    The first version gave predictions the outcome of what they predicted.
    """
    started = run.outcome is not Outcome.SKIPPED and not run.reason.endswith("; not run")
    if started or run.cause:
        return run
    cause = next((cause for words, cause in WORDS if words in run.reason), None)
    return replace(run, outcome=Outcome.SKIPPED, cause=cause)
