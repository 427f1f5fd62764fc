"""What a dry run shows."""

import re
from dataclasses import replace

import pytest

from attnbench.analysis.statistics.curves import size_names
from attnbench.records import Mode
from attnbench.report.cases import plan_data, plan_table, plan_total
from attnbench.running.foresee import ForeseenFront, foresee
from tests.report.test_writers import printed
from tests.running.sessions import PLAN, REQUEST, planned

GIB = 1 << 30
OTHER = planned("odd", 128, 10**8, refusal="it cannot", mode=Mode.TRAINING)


def tables(request, plan, memory_bytes=8 * GIB):
    found = foresee(request, plan, memory_bytes)
    cases = plan_table(plan, request, found, size_names(plan))
    return found, cases, plan_total(plan, request, found, memory_bytes)


def texts(table):
    return [[cell.text for cell in row] for row in table.rows]


def test_the_total_the_budget_and_the_memory_are_shown():
    *_, total = tables(replace(REQUEST, budget_s=600.0), PLAN)
    assert "; budget: 10.0 min. Measured: 6 of 6 cases, rounds: 3. All" in total
    assert "Largest peak memory: 1000 B of 8.000 GiB available." in total
    *_, total = tables(REQUEST, PLAN, None)
    assert "; budget: none." in total
    assert "available" not in total


def test_what_is_left_out_has_a_reason():
    plan = (*PLAN, OTHER)
    found, cases, _ = tables(replace(REQUEST, budget_s=6.0), plan)
    assert len(found.left_out) == sum("round" not in row[-1] for row in texts(cases)) > 1
    assert {row[-1] for row in texts(cases)} >= {"over budget", "it cannot", "1 round"}


def test_how_far_all_series_go_and_how_far_one_does_is_said_for_each_mode():
    """What cannot run at all holds nothing back; another length for each leaves none in common."""
    plan = (*PLAN, OTHER, planned("fast", 1024, 10**8), planned("fast", 256, 1, mode=Mode.TRAINING))
    found, _, total = tables(REQUEST, plan)
    assert found.fronts == [
        ForeseenFront(mode=Mode.INFERENCE, common=512, far=1024),
        ForeseenFront(mode=Mode.TRAINING, common=256, far=256),
    ]
    assert "All series go in inference to N = 512 (the longest curve ends at 1,024); in" in total
    apart = (planned("slow", 128, 10**8), planned("fast", 256, 10**8))
    assert "in inference no length is timed for all series" in tables(REQUEST, apart)[2]
    assert "Nothing is timed." in tables(replace(REQUEST, budget_s=0.1), PLAN)[2]


def test_a_plan_as_data_has_every_case_with_its_reason():
    plan = (*PLAN, OTHER)
    request = replace(REQUEST, budget_s=6.0)
    found = foresee(request, plan, 8 * GIB)
    data = plan_data(plan, request, found, 8 * GIB)
    assert [case["rounds"] > 0 for case in data["cases"]] == [
        case["reason"] == "" for case in data["cases"]
    ]
    assert data["cases"][-1]["reason"] == "it cannot"
    assert data["fronts"][0]["mode"] == "inference"


def test_what_cannot_run_has_a_reason_instead_of_costs():
    refused = tuple(planned("odd", n, 10**8, refusal="it cannot") for n in (128, 256))
    _, cases, _ = tables(REQUEST, (*PLAN, *refused))
    assert [row[3:] for row in texts(cases)[-2:]] == [["–", "–", "it cannot"]] * 2
    assert "–" not in texts(cases)[0]
    _, alone, _ = tables(REQUEST, refused)
    text = printed(alone, 160)
    assert "it cannot" not in text.splitlines()[0]
    assert text.count("it cannot") == 2


def test_what_a_module_without_a_card_costs_is_unknown():
    plan = (*PLAN, replace(planned("mine", 128, 10**8, size=1 << 40), declared=False))
    _, cases, total = tables(REQUEST, plan)
    assert texts(cases)[-1][3:] == ["unknown", "unknown", "3 rounds"]
    assert "Largest peak memory: 1000 B" in total
    assert "What mine:eager costs is not known before it runs" in total
    assert "not known" not in tables(REQUEST, PLAN)[2]


@pytest.mark.parametrize("width", [50, 60, 80])
def test_on_a_narrow_terminal_every_line_of_the_plan_says_of_which_case_it_is(width):
    plan = tuple(
        planned(name, n, n * 10**6, mode=mode)
        for name in ("longformer", "fastformer")
        for mode in Mode
        for n in (1024, 65536)
    )
    lines = printed(tables(REQUEST, plan)[1], width).splitlines()
    numbers = [line for line in lines if re.search(r"\d (ms|s|min|B)\b", line)]
    assert len(numbers) >= len(plan)
    for line in numbers:
        assert re.search(
            r"^(longformer|fastformer).* (training|inference|decode) +(1,024|65,536) ", line
        )


def test_what_all_cases_share_is_in_the_title():
    _, cases, _ = tables(REQUEST, PLAN)
    assert cases.title == "Plan (D256-H16/attention/float32/cpu)"
    assert texts(cases)[0][0] == "slow:eager"
