"""Conclusions on pairs of series, made by hand."""

from attnbench.analysis.conclusions import Basis, Conclusion, Question, Scope, Value

SWEEP = (128, 256, 512, 1024)


def pair(a, b, answer, lengths=SWEEP, mode="training", **ends):
    return Conclusion(
        question=Question.FASTER_FROM,
        answer=answer,
        mode=mode,
        scope=Scope(lengths=lengths, of_sweep=SWEEP),
        basis=Basis.MEASURED,
        series=(a,),
        against=(b,),
        value=Value(**ends),
    )


BOTH = {"point": 300.0, "low": 256.0, "high": 512.0}
