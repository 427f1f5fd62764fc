"""`attnbench model` as a user meets it: a configuration in, the costs of its layers out."""

import csv
import json

import pytest

from attnbench.commands.model.command import USUAL, in_a_row, usual
from attnbench.records.storage.journal import load
from tests.commands.commands import here, refused
from tests.commands.model.test_layers import DELTA, FAMILIES, SMALL

SHORT = ("--lengths", "16,33", "--step", "1,20", "--mode", "decode,inference", "--quick")
SHORT += ("--budget", "none", "--device", "cpu")
QWEN = {**SMALL, **DELTA, "full_attention_interval": 4, "model_type": "qwen3_next"}


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    file = tmp_path_factory.mktemp("models") / "config.json"
    file.write_text(json.dumps({**QWEN, "dtype": "float32"}))
    return file


@pytest.fixture(scope="module")
def measured(qwen):
    return here("model", qwen, *SHORT, "--out", qwen.parent / "sweep", "--json")


def test_a_plan_is_printed_as_json(qwen):
    plan = json.loads(here("model", qwen, *SHORT, "--dry-run", "--json").stdout)
    assert plan["cases"]
    assert plan["budget_s"] is None


def test_json_has_each_kind_at_its_sizes(qwen, measured):
    found = json.loads(measured.stdout)
    linear, full = found["kinds"]
    assert (found["model_type"], found["dtype"]) == ("qwen3_next", "float32")
    assert (linear["layers"], full["layers"]) == (3, 1)
    assert linear["kept"]["33"] == 3 * 4 * (4 * 8 * 16 + 3 * (2 * 2 * 8 + 4 * 16))
    assert full["per_token"] == 4 * 2 * 2 * 16
    places = [(cost["mode"], cost["step"], cost["seq_len"]) for cost in full["costs"]]
    steps = [("decode", 1, 16), ("decode", 1, 33), ("decode", 20, 16), ("decode", 20, 33)]
    assert places == [*steps, ("inference", 1, 16), ("inference", 1, 33)]
    sums = {(cost["mode"], cost["step"], cost["seq_len"]): cost for cost in found["sum"]}
    assert {*places} - {*sums} == {("decode", 20, 16)}, "20 tokens do not end a context of 16"
    for place, *own in zip(places, linear["costs"], full["costs"], strict=True):
        if place in sums:
            assert sum(cost["time_point"] for cost in own) == pytest.approx(
                sums[place]["time_point"]
            )
    assert full["costs"][3]["flops"] > 10 * full["costs"][1]["flops"], "of 20 tokens"
    plan = load(qwen.parent / "sweep").plan
    w = plan[0].case.workload
    assert (w.width, w.heads, w.batch, w.dtype) == (64, 4, 1, "float32")
    # as many in a row as have the weights of the whole model, about four of either kind
    assert plan[0].case.mechanism == f"stack(5*{linear['mechanism']})"
    assert plan[-1].case.mechanism == "stack(4*grouped_query[gate=True,kv_heads=2])"


def test_layers_that_no_cache_holds_are_measured_one_at_a_time():
    given = {"lengths": (16,), "mode": ("decode",), "level": "attention", "heads": (16,)}
    chosen = {"grouped_query": 2, "sliding_window": 2}
    large = in_a_row(chosen, {**given, "width": (4096,), "device": "cpu"})
    assert large == ("grouped_query", "sliding_window")


def test_a_sweep_of_another_model_is_not_resumed(measured, qwen, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**SMALL, "model_type": "llama"}))
    said = refused("model", file, "--resume", qwen.parent / "sweep")
    assert "the sweep there is of another model" in said


def test_the_folder_is_an_ordinary_sweep_with_the_table_and_the_figure(qwen, measured):
    folder = qwen.parent / "sweep"
    assert {"layers.png", "layers.csv", "decode.png", "report.html"} <= {
        path.name for path in folder.iterdir()
    }
    assert "Gated DeltaNet" in here("report", folder).stdout


@pytest.mark.long
def test_the_table_is_printed_and_a_resumed_sweep_prints_it_again(qwen, measured):
    done = here("model", qwen, "--resume", qwen.parent / "sweep")
    title, *_ = done.stdout.splitlines()
    assert title == "Costs of the layers: qwen3_next, float32, CPU time on one core"
    assert "all layers" in done.stdout
    assert "20 at 16: cannot run." in " ".join(done.stdout.split())
    with (qwen.parent / "sweep" / "layers.csv").open() as file:
        heading = next(csv.reader(file))
    assert "20_at_33_ms" in heading
    assert "20_at_16_ms" not in heading
    assert "Left out: positions, norms of queries and keys, feed-forwards." in " ".join(
        done.stdout.split()
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--width", "64"), "takes no --width: what it measures follows from the model's file"),
        (("--models", "mamba2"), "attnbench model takes no --models"),
        (("--config", "sweep.toml"), "attnbench model takes no --config"),
        (("--wdth", "64"), "--wdth"),
        (("--lengths", "x"), "--lengths 'x'"),
        (("more.json",), "model takes CONFIG: 'more.json' is too much"),
        (("--causal",), "takes no --causal: what it measures follows from the model's file"),
        (("--mode", "training"), "are measured in decode and inference"),
        (("--dtype", "fp32,bf16"), "--dtype float32,bfloat16: give one"),
    ],
)
def test_a_mistake_is_one_line(qwen, arguments, said):
    assert said in refused("model", qwen, *arguments)


def test_a_model_of_which_nothing_can_be_measured_says_why(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**SMALL, **FAMILIES["mamba"], "model_type": "mamba"}))
    said = refused("model", file)
    assert "can be measured: linear, state 32 × 8, convolution 4" in said
    assert "no mechanism here is a Mamba-1; attnbench bytes reads it" in said


def test_sizes_of_steps_are_a_default_where_steps_are_measured():
    assert usual({}) == {**USUAL}
    assert usual({"mode": ("inference", "decode")}) == {**USUAL}
    assert "step" not in usual({"mode": ("inference",)})
