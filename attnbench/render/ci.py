"""A check as continuous integration reads it: JUnit XML, and annotations of GitHub Actions."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator

from attnbench.analysis.verdict import Verdict
from attnbench.gate.finding import Finding, Report
from attnbench.render.check_page import doubts, sentence
from attnbench.render.grid import clean

MOST = 10  # a runner shows no more annotations of one kind for a step


def junit(report: Report) -> bytes:
    """A suite for each mechanism, with a test case for each case and metric, as bytes.

    What fails is a `failure`; what could not be decided is `skipped`, with the reason.
    """
    suites = ET.Element("testsuites", name="attnbench check")
    for mechanism in dict.fromkeys(found.mechanism for found in report.findings):
        rows = [found for found in report.findings if found.mechanism == mechanism]
        suite = ET.SubElement(
            suites,
            "testsuite",
            name=clean(mechanism),
            tests=str(len(rows)),
            failures=str(sum(found.fails for found in rows)),
            skipped=str(sum(_is_open(found) for found in rows)),
            errors="0",
        )
        for found in rows:
            _case(suite, found)
    ET.indent(suites, " ")
    text: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


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
    """`::error title=…::message`, on one line.

    A command ends at its line and its properties at a comma or colon; those are escaped as the
    runner's own toolkit does, so that no text of a mechanism can become a command.
    """
    return f"::{kind} title={_property(title)}::{_data(message)}"


def _case(suite: ET.Element, found: Finding) -> None:
    name, text = clean(f"{found.case} {found.metric}"), clean(sentence(found))
    case = ET.SubElement(suite, "testcase", classname=clean(found.mechanism), name=name)
    if found.fails:
        ET.SubElement(case, "failure", message=text, type=str(found.verdict)).text = text
    elif _is_open(found):
        ET.SubElement(case, "skipped", message=text)
    else:
        ET.SubElement(case, "system-out").text = text


def _is_open(found: Finding) -> bool:
    return not found.fails and found.verdict in (Verdict.UNSURE, Verdict.MISSING)


def _data(text: str) -> str:
    # percent first, or the others would be escaped twice
    return clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
