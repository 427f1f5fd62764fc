"""What a process that reads cards answers: facts, plans, and failures in one line."""

import pytest

from attnbench.measuring.reader import CardReader, failure_of
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Selection
from attnbench.records.messages import Describe, Finish, ReadPlan, Verify, written
from tests import sweeps

REQUEST = sweeps.sweep(("fastformer",), lengths=(16,)).request


def answered(question):
    return CardReader(None).answer(**written(question))


def test_a_card_is_described_as_data_with_what_runs_or_why_not():
    answer = answered(Describe(names=("fnet", "grouped_query"), device="cpu"))
    fnet, grouped = answer["described"]
    assert answer["outcome"] == "ok"
    assert (fnet["name"], fnet["causal"], fnet["declared"]) == ("fnet", "never", True)
    assert fnet["decode"]["eager"] == card("fnet").no_decode_reason
    assert grouped["decode"]["eager"] == grouped["forms"]["eager"] == "runs"
    assert grouped["options"]["kv_heads"] is None
    assert grouped["packages"]["transformers"]["package"] == "transformers"
    assert grouped["parameters"] > 0
    assert "[B, N, D]" in fnet["equations"]


def test_a_plan_has_the_cases_of_each_selection_and_the_facts_of_each_mechanism():
    selections = (Selection(name="fastformer"), Selection(name="fastformer", form="folded"))
    asked = ReadPlan(names=("fastformer",), request=REQUEST, selections=selections)
    answer = answered(asked)
    forms = [{line["case"]["form"] for line in lines} for lines in answer["plan"]]
    assert forms[1] == {"folded"}
    assert len(forms[0]) == 1
    assert [facts["mechanism"] for facts in answer["cards"]] == ["fastformer"]


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("linfromer", "UnknownMechanism", "did you mean linformer"),
        ("linformer:nothing", "UnknownMechanism", "unknown form"),
    ],
)
def test_what_is_unknown_is_a_failure_with_the_class_of_its_error(name, error, said):
    mechanism, _, form = name.partition(":")
    selection = Selection(name=mechanism, form=form or None)
    answer = answered(ReadPlan(names=(), request=REQUEST, selections=(selection,)))
    assert (answer["outcome"], answer["error"]) == ("failed", error)
    assert said in answer["reason"]


@pytest.mark.parametrize("raised", ["SystemExit(3)", "ValueError('one\\ntwo')"])
def test_whatever_a_card_raises_is_one_line_that_names_it(raised, tmp_path):
    file = tmp_path / f"mine_{len(raised)}.py"
    file.write_text(
        "from dataclasses import replace\nfrom attnbench.mechanisms.fnet import CARD\n\n"
        f"def parameters(config, workload):\n    raise {raised}\n\n"
        "CARD = replace(CARD, parameters=parameters)\n"
    )
    name = f"{file}:CARD"
    answer = answered(Describe(names=(name,), device="cpu"))
    assert answer["error"] == "UnknownMechanism"
    kind = raised.partition("(")[0]
    assert answer["reason"].startswith(f"{name!r}: its card fails: {kind}")
    assert "two" not in answer["reason"]


def test_the_checks_of_the_contract_are_run_on_one_mechanism():
    checks = answered(Verify(names=("fnet",)))["checks"]
    assert {check["result"] for check in checks} == {"passed", "skipped"}
    assert "computes its own equations" in {check["check"] for check in checks}


def test_a_question_for_others_is_a_failure_too():
    answer = answered(Finish())
    assert "does not answer Finish" in answer["reason"]
    assert failure_of(ValueError, "why").error == "ValueError"
