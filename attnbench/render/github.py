"""A check as workflow commands of GitHub Actions: lines that become annotations.

A command ends at its line and its properties at a comma or colon; those are escaped as the
runner's own toolkit does, so that no text of a mechanism can become a command.
"""

from collections.abc import Iterator

from attnbench.gate.finding import Report
from attnbench.render.check_page import doubts, sentence
from attnbench.render.grid import clean

MOST = 10  # the runner shows no more of one kind for a step


def annotations(report: Report) -> Iterator[str]:
    """One line each: errors for what fails, warnings for what is not certain."""
    failures = report.failures
    for found in failures[: MOST - 1 if len(failures) > MOST else MOST]:
        yield command("error", f"attnbench: {found.mechanism}", sentence(found))
    if len(failures) > MOST:
        left = len(failures) - MOST + 1
        yield command("error", "attnbench", f"and {left} more; see the job summary")
    for doubt in doubts(report):
        yield command("warning", "attnbench", doubt)


def command(kind: str, title: str, message: str) -> str:
    """`::error title=…::message`, escaped."""
    return f"::{kind} title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    # percent first, or the others would be escaped twice
    return clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
