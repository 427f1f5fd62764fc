"""Verdicts in the words of what was measured."""

from attnbench.analysis.statistics.verdict import Verdict
from attnbench.records.metrics import Better, Metric, Unit


def verdict_label(verdict: Verdict, metric: Metric) -> str:
    """The verdict in the words of the metric: bytes are larger, not slower."""
    if metric.unit is Unit.SECONDS or verdict not in (Verdict.SLOWER, Verdict.FASTER):
        return str(verdict)
    grew = (verdict is Verdict.SLOWER) == (metric.better is Better.LOWER)
    return "larger" if grew else "smaller"
