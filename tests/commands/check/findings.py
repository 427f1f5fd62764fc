"""Findings and reports of a check, made by hand."""

from dataclasses import replace

from attnbench.commands.check.finding import CheckAnswer, CheckReport, Finding

CASE = "fastformer:eager/B8-N128-D256-H16/attention/inference/float32/cpu"


def finding(metric="time_s", answer="same", **more):
    return Finding(
        mechanism="fastformer", case=CASE, metric=metric, answer=CheckAnswer(answer), **more
    )


SLOWER = finding(base=0.010, head=0.0112, ratio=1.12, low=1.1, high=1.14, answer="slower")


LARGER = finding("allocated_peak_bytes", "slower", base=2**20, head=2**21, ratio=2.0)


UNSURE = finding(ratio=1.5, answer="not known", reason="suspected at first, not confirmed")


BROKEN = finding("runs", "breaks", reason="failed on head only: it broke")


DIFFERENT = finding("outputs", "different", reason="the output differs by 0.1")


NEITHER = finding("runs", "neither", reason="on neither side: there is no file x.py")


KILLED = finding("runs", "killed", reason="could not be measured on head: killed")


LOST = finding("runs", "lost", reason="failed on base only: x")


ADDED = finding("runs", "added", reason="added: there is no file x.py")


NEEDS = "needs about --budget 8m"


SAME = finding("operators", base=22.0, head=22.0, ratio=1.0)


OTHER_SAME = replace(SAME, case=CASE.replace("N128", "N512"))


LATE = replace(
    UNSURE, case=OTHER_SAME.case, ratio=None, reason="no time was left", decided_by=NEEDS
)


OTHER = replace(SLOWER, case=CASE.replace("N128", "N512"))


FASTER = finding(base=0.010, head=0.0092, ratio=0.92, low=0.91, high=0.93, answer="faster")


def report(*findings, **more):
    return CheckReport(base="main (abc)", head="the working tree", findings=findings, **more)
