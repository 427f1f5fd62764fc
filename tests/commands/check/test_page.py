"""A check's outputs: failures first, and no text of a mechanism can pass for anything else."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.commands.check import page as check_page
from attnbench.commands.check.cases import CheckPlan
from attnbench.commands.check.ci import annotations, bmf, junit, outputs
from attnbench.commands.check.finding import CheckAnswer, CheckReport, Conditions, Finding

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


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (report(SAME), "OK: no regression in 1 case"),
        (report(), "nothing to check: no mechanism loads a changed file"),
        (report(SLOWER, LARGER, BROKEN), "FAILED: 1 slower, 1 larger, 1 failing of 1 case"),
        (report(SLOWER, OTHER, SAME), "FAILED: 2 slower of 2 cases"),
        (report(DIFFERENT, SAME), "FAILED: 1 different of 1 case"),
        (report(UNSURE), "UNSURE: 1 of 1 case"),
        (report(NEITHER, SAME), f"NOT CHECKED: {CASE}: on neither side: there is no file x.py"),
        (
            report(NEITHER, OTHER_SAME),
            f"NOT CHECKED: 1 of 2 cases: {CASE}: on neither side: there is no file x.py",
        ),
        (
            report(KILLED, OTHER_SAME),
            f"UNSURE: 1 of 2 cases; 1 not compared: {CASE}: could not be measured on head: killed",
        ),
        (
            report(LOST, OTHER_SAME),
            f"OK: no regression in 1 of 2 cases; 1 not compared: {CASE}: failed on base only: x",
        ),
        (report(LOST), f"NOT CHECKED: {CASE}: failed on base only: x"),
        (report(ADDED), f"nothing to compare: {CASE}: added: there is no file x.py"),
        (report(ADDED, named=True), f"NOT CHECKED: {CASE}: added: there is no file x.py"),
        (
            report(replace(SLOWER, case=OTHER_SAME.case), LOST),
            f"FAILED: 1 slower of 2 cases; 1 not compared: {CASE}: failed on base only: x",
        ),
        (
            report(SAME, UNSURE, LATE),
            f"UNSURE: 2 of 2 cases; for 1 no time was left; 1 of them {NEEDS}",
        ),
    ],
)
def test_the_headline(made, words):
    assert check_page.headline(made) == words


def test_a_finding_in_one_sentence():
    assert check_page.sentence(SLOWER) == (
        f"{CASE}: time slower; +12 % [+10 %, +14 %], 10.0 ms to 11.2 ms"
    )
    assert "allocated peak larger; +100 %, 1.000 MiB to 2.000 MiB" in check_page.sentence(LARGER)
    assert check_page.sentence(BROKEN) == f"{CASE}: failed on head only: it broke"


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


CONDITIONS = Conditions(
    plan=CheckPlan(),
    clock="process CPU time",
    worst_floor=0.00235,
    elapsed_s=48.1,
)


def test_the_page_has_what_fails_first():
    page = check_page.page(report(SAME, FASTER, OTHER))
    assert page.startswith("# attnbench check: FAILED")
    assert page.index("12 %") < page.index("−8.0 %")
    assert page.count("+12 %") == 1, "no row is repeated above the tables"
    assert "1 of 1 counted metrics are the same" not in page  # nothing of it to show


def test_a_row_has_the_short_name_of_its_case():
    times, counts = check_page.tables(report(SLOWER, OTHER, LARGER))
    first = [row[0].text for row in times.rows]
    assert first == ["fastformer:eager N=128 inference", first[0].replace("128", "512")]
    assert counts.rows[0][0].text == first[0]
    assert counts.note == "0 of 1 counted metrics are the same"


SUSPECT = replace(
    SLOWER,
    case="shop.code:index",
    answer=CheckAnswer.SUSPECTED,
    file="src/shop/code.py",
    reason="no time was left to confirm",
    decided_by="needs about --budget 3m",
)


def test_what_is_suspected_is_said_with_the_budget_it_needs():
    made = report(SUSPECT, replace(SUSPECT, case="shop.code:price"))
    assert check_page.headline(made) == (
        "PROBABLY SLOWER: shop.code:index +12 % [+10 %, +14 %], shop.code:price +12 % [+10 %,"
        " +14 %]; no time was left to confirm; needs about --budget 3m"
    )
    assert (made.exit_code(strict=False), made.exit_code(strict=True)) == (0, 3)
    (first, _) = annotations(made)
    assert first == (
        "::warning file=src/shop/code.py,title=attnbench%3A fastformer::shop.code:index: time"
        " suspected; +12 %25 [+10 %25, +14 %25], 10.0 ms to 11.2 ms;"
        " no time was left to confirm; needs about --budget 3m"
    )
    for strict, ended in ((False, "skipped"), (True, "failure")):
        assert [case[0].tag for case in ET.fromstring(junit(made, strict))[0]] == [ended] * 2
    faster = check_page.headline(report(replace(SUSPECT, ratio=0.9, low=0.88, high=0.92)))
    assert faster.startswith("PROBABLY FASTER: shop.code:index −10 %")


def test_functions_have_calls_and_no_batch():
    (times,) = check_page.tables(report(SUSPECT))
    assert times.columns == ("case", "base", "head", "change", "verdict")
    assert times.note.startswith("time of one call; 99 %")
    (times,) = check_page.tables(report(replace(SLOWER, batch=2)))
    assert times.rows[0][1].text == "2"


def test_the_page_ends_with_how_it_was_measured_in_sentences():
    assert check_page.page(report(SLOWER, SAME, conditions=CONDITIONS)).splitlines()[-1] == (
        "Counts, outputs and gradients are those at c = 1,024 tokens, D = 256, H = 16, float32."
        " Timed by process CPU time in up to"
        " 10 pairs of fresh processes, and in up to 54 more where that leaves doubt; changes below"
        " 2.0 % are ignored; base and base differed by up to 0.2 %. The check took 48.1 s."
    )
    assert list(check_page.method(report(SLOWER))) == []


def test_the_data_say_everything():
    found = check_page.data(report(SLOWER, conditions=CONDITIONS), strict=False)
    again = json.loads(json.dumps(found))
    plan = again["conditions"]["plan"]
    assert [plan[name] for name in ("tokens", "rounds", "looks")] == [1024, 20, [10, 16]]
    assert (plan["budget_s"], plan["modes"]) == (300.0, ["training", "inference"])
    assert again["exit_code"] == 1
    assert again["findings"][0]["ratio"] == 1.12
