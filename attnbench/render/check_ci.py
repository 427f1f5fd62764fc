"""A check for continuous integration: JUnit XML, and GitHub annotations."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator

from attnbench.gate.finding import Finding, Report
from attnbench.render.check_page import label, sentence, uncertain_lines
from attnbench.render.grid import clean
from attnbench.statistics.verdict import Verdict

MOST = 10  # GitHub shows no more annotations of one kind per step


def junit(report: Report) -> bytes:
    """A suite for each mechanism, with a test case for each case and metric, as UTF-8.

    What fails is a `failure`; what ran on neither side is an `error`; what could not be decided is
    `skipped`, with the reason.
    """
    suites = ET.Element("testsuites", name="attnbench check")
    for mechanism in dict.fromkeys(finding.mechanism for finding in report.findings):
        rows = [finding for finding in report.findings if finding.mechanism == mechanism]
        suite = ET.SubElement(
            suites,
            "testsuite",
            name=clean(mechanism),
            tests=str(len(rows)),
            failures=str(sum(finding.fails for finding in rows)),
            skipped=str(sum(_is_open(finding) for finding in rows)),
            errors=str(sum(finding.unchecked for finding in rows)),
        )
        for finding in rows:
            _test_case(suite, finding)
    ET.indent(suites, " ")
    text: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def annotations(report: Report) -> Iterator[str]:
    """One line each: errors for what fails, warnings for what is uncertain."""
    failures = report.failures
    for finding in failures[: MOST - 1 if len(failures) > MOST else MOST]:
        yield command("error", f"attnbench: {finding.mechanism}", sentence(finding))
    if len(failures) > MOST:
        left = len(failures) - MOST + 1
        yield command("error", "attnbench", f"and {left} more; see the job summary")
    for finding in report.unchecked[:MOST]:
        yield command("error", f"attnbench: {finding.mechanism}", sentence(finding))
    for doubt in uncertain_lines(report):
        yield command("warning", "attnbench", doubt)


def command(kind: str, title: str, message: str) -> str:
    """`::error title=…::message`, on one line.

    A command ends with its line, and its properties end at a comma or colon; those are escaped as
    GitHub's own toolkit does, so that no text of a mechanism can become a command.
    """
    title = _escaped(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{kind} title={title}::{_escaped(message)}"


def _test_case(suite: ET.Element, finding: Finding) -> None:
    name, text = clean(f"{finding.case} {finding.metric}"), clean(sentence(finding))
    case = ET.SubElement(suite, "testcase", classname=clean(finding.mechanism), name=name)
    if finding.fails:
        ET.SubElement(case, "failure", message=text, type=label(finding)).text = text
    elif finding.unchecked:
        ET.SubElement(case, "error", message=text, type="unchecked").text = text
    elif _is_open(finding):
        ET.SubElement(case, "skipped", message=text)
    else:
        ET.SubElement(case, "system-out").text = text


def _is_open(finding: Finding) -> bool:
    closed = finding.fails or finding.unchecked
    return not closed and finding.verdict in (Verdict.UNSURE, Verdict.MISSING)


def _escaped(text: str) -> str:
    # percent first, or the others would be escaped twice
    return clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
