"""What the numbers of a sweep mean, and what others will be; it loads no torch.

    analyse, Analysis                   a stored sweep, and all that reports say of it
    Frame, Row                          its cases as a table, and one of them
    Question, Answer, Conclusion        what is asked of series, and what follows from the numbers
    Basis, Expected, Scope, Value       what a conclusion rests on, and where it holds
    Verdict, Estimate, IntervalKind     one comparison; one value with its interval
    planned_warnings                    what a plan alone already warns of

What needs numpy and pandas is imported when it is first asked for.
"""

from typing import TYPE_CHECKING

from attnbench.analysis.conclusions import (
    Answer,
    Basis,
    Conclusion,
    Expected,
    Question,
    Scope,
    Value,
)

if TYPE_CHECKING:
    from attnbench.analysis.report import Analysis, analyse
    from attnbench.analysis.statistics.estimate import Estimate, IntervalKind
    from attnbench.analysis.statistics.verdict import Verdict
    from attnbench.analysis.summary import Frame, Row
    from attnbench.analysis.warnings import planned_warnings

__all__ = (
    "Analysis",
    "Answer",
    "Basis",
    "Conclusion",
    "Estimate",
    "Expected",
    "Frame",
    "IntervalKind",
    "Question",
    "Row",
    "Scope",
    "Value",
    "Verdict",
    "analyse",
    "planned_warnings",
)


def __getattr__(name: str) -> object:
    """Import a name from its module on first access."""
    if name in ("Analysis", "analyse"):
        from attnbench.analysis import report

        return getattr(report, name)
    if name in ("Frame", "Row"):
        from attnbench.analysis import summary

        return getattr(summary, name)
    if name in ("Estimate", "IntervalKind"):
        from attnbench.analysis.statistics import estimate

        return getattr(estimate, name)
    if name == "Verdict":
        from attnbench.analysis.statistics.verdict import Verdict

        return Verdict
    if name == "planned_warnings":
        from attnbench.analysis.warnings import planned_warnings

        return planned_warnings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
