"""How results are written and drawn: tables, their writers, figures, the page. It only writes."""

from attnbench.report.sizes import ReportSize as ReportSize
