"""A check as JUnit XML: a suite for each mechanism, a test case for each case and metric."""

import xml.etree.ElementTree as ET

from attnbench.analysis.verdict import Verdict
from attnbench.gate.finding import Finding, Report
from attnbench.render.check_page import sentence
from attnbench.render.grid import clean


def junit(report: Report) -> bytes:
    """The file's bytes; what fails is a failure, what could not be told is skipped with why."""
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
