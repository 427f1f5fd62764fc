"""Stacks are compared per layer with single layers, where those are what is measured."""

from dataclasses import replace

import pytest

from attnbench.analysis.report import analyse
from attnbench.commands.recommend.analysis import recommend
from attnbench.commands.recommend.page import ranking
from attnbench.records import Level
from attnbench.report.charts import charts
from attnbench.report.page import report_tables
from tests.sweeps import decoded, raced

STACK = "stack(3*transformer+fastformer)"
LAYERS = ("transformer:eager",) * 3 + ("fastformer:eager",)
SECONDS = {"transformer": 0.2, "fastformer": 0.1, STACK: 0.4}  # the stack takes half per layer


def stacked(level=Level.ATTENTION):
    states = {name: lambda n: 512 * n for name in ("transformer", "fastformer")}
    whole = decoded(states | {STACK: lambda n: 1024 * n}, lengths=(128, 512))
    plan, keys = [], {}
    for line in whole.plan:
        workload = replace(line.case.workload, level=level)
        case = replace(line.case, workload=workload)
        keys[line.case.key] = case.key
        plan.append(replace(line, case=case, layers=LAYERS if case.mechanism == STACK else ()))
    runs = tuple(replace(run, case=keys[run.case]) for run in whole.runs)
    whole = replace(whole, plan=tuple(plan), runs=runs)
    return raced(whole, lambda case, round_: dict.fromkeys(range(4), SECONDS[case.mechanism]))


def test_a_stack_is_compared_per_layer():
    found = analyse(stacked())
    costs = found.cases[found.cases["seq_len"] == 512].set_index("mechanism")
    assert costs.loc[STACK, "time_s"] == pytest.approx(0.1)
    assert costs.loc[STACK, "state_bytes"] == costs.loc["transformer", "state_bytes"] / 2
    assert costs.loc[STACK, "tokens_per_s"] == pytest.approx(10)
    speed = found.speedups.set_index(["series", "seq_len"])["ratio"]
    assert speed[f"{STACK}:eager", 512] == pytest.approx(2)
    tied = found.answers.fastest[0]
    assert {tied.first, *(tie.series for tie in tied.ties)} == {
        f"{STACK}:eager",
        "fastformer:eager",
    }
    crossing = found.crossovers.set_index(["series", "other"])["answer"]
    assert crossing[f"{STACK}:eager", "transformer:eager"] == "faster where measured"
    titles = {table.name: table.title for table in report_tables(found)}
    of_mode = ("answer", "latency", "speedup", "memory", "state")
    for name in (f"{table}_decode" for table in of_mode):
        assert "per layer" in titles[name], name
    assert "per layer" in titles["crossovers"]
    assert "per layer" in ranking(recommend(found, 512)).title
    texts = {one["key"]: one["label"] for one in charts(found)["quantities"]}
    of = {key for key, text in texts.items() if "per layer" in text}
    assert of >= {"tokens_per_s", "state_bytes", "speedup"}
    assert "flops" not in of


def test_at_level_model_and_without_stacks_nothing_is_divided():
    whole = stacked(Level.MODEL)
    assert analyse(whole).cases.set_index("mechanism").loc[STACK, "time_s"].iloc[0] == 0.4
    assert not any("per layer" in table.title for table in report_tables(analyse(whole)))
