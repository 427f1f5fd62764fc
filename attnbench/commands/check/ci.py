"""A check for continuous integration: JUnit XML, Bencher's JSON, and GitHub annotations."""

import json
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator

from attnbench.commands.check.finding import CheckAnswer, CheckReport, Finding
from attnbench.commands.check.page import LABEL, headline, label, remarks, sentence
from attnbench.errors import clean
from attnbench.records import metrics

MOST = 10  # GitHub shows no more annotations of one kind per step


def junit(report: CheckReport, strict: bool = False) -> bytes:
    """A suite with a test case for each case and metric, as UTF-8.

    What fails is a `failure`, if `strict` also what is suspected. An `error` is what ran on neither
    side or was killed, and what was not compared, if `strict` or nothing was. What could not be
    decided is `skipped`, with the reason.
    """
    errors = {*report.unchecked_findings, *(report.lost_findings if strict else ())}
    results = [_result(finding, strict, finding in errors) for finding in report.findings]
    counts = {f"{kind}s": str(results.count(kind)) for kind in ("failure", "error")}
    suites = ET.Element("testsuites", name="attnbench check")
    about = {"name": "attnbench check", "tests": str(len(results)), **counts}
    suite = ET.SubElement(suites, "testsuite", about, skipped=str(results.count("skipped")))
    for finding, result in zip(report.findings, results, strict=True):
        _test_case(suite, finding, result)
    ET.indent(suites, " ")
    text: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def bmf(report: CheckReport) -> bytes:
    """For `bencher run --adapter json`: latency [ns] and counts of head.

    Cases are named as in `exports`, `fastformer:eager/training/N128`.
    """
    cases = defaultdict[str, dict[str, dict[str, float]]](dict)
    for finding in report.findings:
        if finding.head is not None:
            metric = finding.metric
            timed = finding.metric == metrics.TIME
            name = "latency" if timed else metrics.TABLE[metric].name or metric
            value = 1e9 * finding.head if timed else finding.head
            cases[LABEL.sub(r"\1/\3/N\2", finding.case)][name] = {"value": value}
    return json.dumps(cases, indent=1).encode()


def annotations(report: CheckReport) -> Iterator[str]:
    """One line each: errors for what fails, warnings for what is suspected or was not compared.

    Of what is unsure, one has a warning.

    A finding stands at its file, so that a pull request shows it beside the change.
    """
    suspected = report.findings_with(CheckAnswer.SUSPECTED)
    unsure = [finding for finding in report.unsure_findings if finding not in suspected]
    errors = (*report.failures, *report.unchecked_findings)
    lost = [finding for finding in report.lost_findings if finding not in errors]
    shown = {"error": errors, "warning": (*suspected, *lost, *unsure[:1])}
    for kind, findings in shown.items():
        for finding in findings[: MOST - 1]:
            title = f"attnbench: {finding.mechanism}"
            yield command(kind, sentence(finding), file=finding.file, title=title)
        if left := len(findings[MOST - 1 :]):
            yield command(kind, f"and {left} more; see the job summary", title="attnbench")
    for remark in remarks(report):
        yield command("warning", remark, title="attnbench")


def command(kind: str, message: str, **properties: str) -> str:
    """`::error file=…,title=…::message`, on one line.

    A command ends with its line, and its properties end at a comma or colon; those are escaped as
    GitHub's own toolkit does, so that no text of a mechanism can become a command.
    """
    fields = ",".join(
        f"{name}={_escape(text).replace(':', '%3A').replace(',', '%2C')}"
        for name, text in properties.items()
        if text
    )
    return f"::{kind} {fields}::{_escape(message)}"


def outputs(report: CheckReport, strict: bool) -> str:
    """What later steps of a job on GitHub can read: `name=value`, a line each."""
    values = {
        "exit-code": report.exit_code(strict),
        "compared": len(report.compared_cases),
        "not-compared": len(report.uncompared_findings),
        "headline": clean(headline(report)),
    }
    lines = (f"{name}={' '.join(str(value).splitlines())}" for name, value in values.items())
    return "".join(f"{line}\n" for line in lines)


def _result(finding: Finding, strict: bool, is_error: bool) -> str:
    """The element of JUnit that says how a finding ended."""
    if finding.fails or (strict and finding.is_probably_slower):
        return "failure"
    if is_error or finding.answer in (CheckAnswer.NEITHER, CheckAnswer.KILLED):
        return "error"
    return "system-out" if finding.is_decided else "skipped"


def _test_case(suite: ET.Element, finding: Finding, result: str) -> None:
    name = clean(f"{finding.case} {finding.metric}")
    text = clean(sentence(finding))
    case = ET.SubElement(suite, "testcase", classname=clean(finding.mechanism), name=name)
    element = ET.SubElement(case, result)
    if result != "skipped":
        element.text = text
    if result != "system-out":
        element.set("message", text)
    if result in ("failure", "error"):
        element.set("type", label(finding) if result == "failure" else "unchecked")


def _escape(text: str) -> str:
    # percent first, or the others would be escaped twice
    return clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
