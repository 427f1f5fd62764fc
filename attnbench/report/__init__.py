"""How results are written and drawn: tables, their writers, figures, the page. It only writes.

grid, terminal, markdown, delimited    tables, and what writes them
page, answers, cases, figures          what a sweep's report consists of
cost_tables, machine, conditions       parts of it that verbs have pages of their own for
names, phrases, styles                 how series, conclusions and curves are called and drawn
ReportSize                             the place that a report is made for
"""

from attnbench.report.sizes import ReportSize

__all__ = (
    "ReportSize",
    "answers",
    "cases",
    "conditions",
    "cost_tables",
    "delimited",
    "figures",
    "grid",
    "machine",
    "markdown",
    "names",
    "page",
    "phrases",
    "styles",
    "terminal",
)
