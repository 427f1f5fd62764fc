"""Why a curve or a row ends, in two or three words."""

from attnbench.records import Outcome

WORDS = (
    (Outcome.OOM, "out of memory"),
    (Outcome.TIMEOUT, "timed out"),
    (Outcome.CRASHED, "crashed"),
    (Outcome.FAILED, "failed"),
    (Outcome.UNSUPPORTED, "cannot run"),
)

# what the reason of a skipped case speaks of, the first that fits; older journals have other words
CAUSES = (
    ("budget", "over budget"),
    ("memory limit", "exceeds memory"),
    ("memory", "out of memory"),
    ("oom", "out of memory"),
    ("predicted to need", "exceeds memory"),
    ("--case-timeout", "over time limit"),
    ("time", "timed out"),
    ("limit", "over time limit"),
)


def ended(outcome: str, reason: str) -> str:
    """The outcome, or `skipped` for what older journals call by what was only predicted."""
    predicted = outcome in (Outcome.OOM, Outcome.TIMEOUT) and reason.endswith("not run")
    return str(Outcome.SKIPPED) if predicted else outcome


def why(outcome: str, reason: str) -> str:
    """`over budget` for a skipped case whose reason speaks of the budget; never empty."""
    if ended(outcome, reason) == Outcome.SKIPPED:
        return next((word for cause, word in CAUSES if cause in reason.lower()), "skipped")
    if outcome == Outcome.OK:
        return "not measured"  # a memory pass that did not run is no word on the timed runs
    return dict(WORDS)[Outcome(outcome)] if outcome in set(Outcome) else "not run"
