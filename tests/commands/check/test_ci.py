"""A check for continuous integration: no text of a mechanism can pass for anything else."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from attnbench.commands.check import page as check_page
from attnbench.commands.check.ci import annotations, bmf, command, junit, outputs
from attnbench.commands.check.finding import CheckAnswer, Finding
from attnbench.errors import clean
from tests.commands.check.findings import (
    ADDED,
    BROKEN,
    CASE,
    KILLED,
    LARGER,
    LOST,
    OTHER,
    OTHER_SAME,
    SAME,
    SLOWER,
    UNSURE,
    finding,
    report,
)


def test_annotations_are_errors_and_warnings():
    lines = list(annotations(report(SLOWER, UNSURE, notes=("a: b",))))
    assert lines[0].startswith("::error title=attnbench%3A fastformer::fastformer:eager/B8")
    assert "+12 %25" in lines[0]
    assert [line.split(" ")[0] for line in lines] == ["::error", "::warning", "::warning"]


def test_many_failures_do_not_flood():
    lines = list(annotations(report(*[SLOWER] * 40)))
    assert len(lines) == 10
    assert "31 more" in lines[-1]


@given(st.text(), st.text())
def test_no_text_can_become_a_command_or_break_the_file(reason, name):
    odd = Finding(mechanism=name, case=name, metric="runs", answer=CheckAnswer.ADDED, reason=reason)
    failing = replace(odd, answer=CheckAnswer.BREAKS)
    made = report(odd, failing, finding(answer="not known", reason=reason), notes=(reason,))
    for line in annotations(made):
        assert "\n" not in line
        assert "\r" not in line
        assert line.startswith(("::error title=", "::warning title="))
        assert line.count("::") >= 2
        assert ":" not in line[2:].partition("::")[0]
    suites = ET.fromstring(junit(made))
    assert suites.tag == "testsuites"
    check_page.page(made)
    json.dumps(check_page.data(made, strict=True))


def test_bencher_gets_what_head_takes_and_counts():
    function = replace(OTHER, case="shop.code:index")
    found = json.loads(bmf(report(SLOWER, LARGER, SAME, BROKEN, UNSURE, function)))
    measured = {"latency": 0.0112e9, "memory": 2.0**21, "operators": 22.0}
    expected = {"fastformer:eager/inference/N128": measured, "shop.code:index": {"latency": 11.2e6}}
    assert found == {
        case: {name: {"value": value} for name, value in values.items()}
        for case, values in expected.items()
    }


def test_junit_counts_failures_errors_and_skips():
    suite = ET.fromstring(junit(report(SLOWER, UNSURE, SAME, BROKEN, KILLED)))[0]
    assert {key: suite.get(key) for key in ("tests", "failures", "skipped", "errors")} == {
        "tests": "5",
        "failures": "2",
        "skipped": "1",
        "errors": "1",
    }
    assert [case[0].tag for case in suite] == [
        *("failure", "skipped", "system-out", "failure", "error")
    ]
    larger = ET.fromstring(junit(report(LARGER)))[0][0][0]
    assert larger.get("type") == "larger"
    assert "not confirmed" in suite[1].find("skipped").get("message")


def test_what_was_not_compared_is_said_everywhere():
    """As an error where nothing was, or if strict; else with its reason."""
    for made, strict, ended in (
        (report(LOST), False, "error"),
        (report(LOST, OTHER_SAME), False, "skipped"),
        (report(LOST, OTHER_SAME), True, "error"),
        (report(ADDED, named=True), False, "error"),
    ):
        assert ET.fromstring(junit(made, strict))[0][0][0].tag == ended
    made = report(LOST, OTHER_SAME)
    found = check_page.data(made, strict=True)
    assert found["compared"] == [OTHER_SAME.case]
    assert found["not_compared"] == [{"case": CASE, "reason": "failed on base only: x"}]
    assert found["exit_code"] == 3
    assert "Not compared" in check_page.page(made)
    assert [line.split(" ")[0] for line in annotations(made)] == ["::warning"]
    assert outputs(made, strict=False).splitlines()[:3] == [
        "exit-code=0",
        "compared=1",
        "not-compared=1",
    ]
    assert json.loads(bmf(report(LOST))) == {}


@given(st.text())
def test_no_text_adds_an_output_of_a_job(reason):
    lines = outputs(report(replace(LOST, reason=reason)), strict=False).split("\n")
    assert [line.partition("=")[0] for line in lines] == [
        *("exit-code", "compared", "not-compared", "headline"),
        "",
    ]


SIGNS = st.text(st.sampled_from("a,:%=;\r\n2C"), max_size=8) | st.text()


@given(SIGNS, st.dictionaries(st.sampled_from(["file", "title"]), SIGNS))
def test_a_command_is_one_line_whose_parts_github_reads_back(message, properties):
    line = command("error", message, **properties)
    assert len(line.splitlines()) == 1
    head, fields, text = line.split("::", 2)[0], *line[2:].split("::", 1)
    assert head == ""
    kind, _, fields = fields.partition(" ")
    assert kind == "error"
    read = dict(each.split("=", 1) for each in fields.split(",") if each)
    shown = {name: clean(value) for name, value in properties.items() if value}
    escapes = (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%"))
    for code, letter in escapes:
        read = {name: value.replace(code, letter) for name, value in read.items()}
        text = text.replace(code, letter)
    assert read == shown
    assert text == clean(message)
