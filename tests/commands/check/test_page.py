"""A check in words: failures first, and everything as data."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from attnbench.commands.check import page as check_page
from attnbench.commands.check.cases import CheckPlan
from attnbench.commands.check.ci import annotations, junit
from attnbench.commands.check.finding import CheckAnswer, Conditions
from tests.commands.check.findings import (
    ADDED,
    BROKEN,
    CASE,
    DIFFERENT,
    FASTER,
    KILLED,
    LARGER,
    LATE,
    LOST,
    NEEDS,
    NEITHER,
    OTHER,
    OTHER_SAME,
    SAME,
    SLOWER,
    UNSURE,
    report,
)


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
        " 2.0 % are ignored, and below the limit that a case states where its noise hides more;"
        " that a case is the same excludes a change of the mean of all calls from 5.0 % on; base"
        " and base differed by up to 0.2 %."
        " The check took 48.1 s."
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
