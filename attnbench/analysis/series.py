"""Which cases of a plan lie on one curve; without pandas, since the loop of a sweep asks too."""

from collections.abc import Sequence
from typing import Any

from attnbench.records import Case, Planned, Selection


def series_names(plan: Sequence[Planned]) -> dict[str, str]:
    """The name of the curve that each case of the plan lies on, by the case's key.

    A mechanism whose form changes along the lengths (its default is the fastest at each) is one
    curve under its own name; where a workload has several forms, each form is a curve.
    """
    groups: dict[tuple[str, Any], list[Case]] = {}
    for line in plan:
        groups.setdefault((line.case.mechanism, line.case.options), []).append(line.case)
    names = {}
    for cases in groups.values():
        rivals = len({case.workload for case in cases}) < len({case.key for case in cases})
        mixed = len({case.form for case in cases}) > 1 and not rivals
        for case in cases:
            form = None if mixed else case.form
            selection = Selection(name=case.mechanism, form=form, options=case.options)
            names[case.key] = str(selection)
    return names
