"""`attnbench model` as a user meets it: a configuration in, the costs of its layers out."""

import csv
import json

import pytest

from attnbench.commands.model.command import (
    USUAL,
    default_options,
    mechanisms,
    resumed_layers,
    stacks,
    too_large,
    weight_bytes,
)
from attnbench.commands.model.mechanisms import measurable
from attnbench.errors import UsageError
from attnbench.records.selection import layers as stacked
from attnbench.records.storage.journal import load
from attnbench.running.request.requests import request
from tests.commands.commands import here, refused
from tests.commands.model.test_configured_layers import DELTA, FAMILIES, SMALL

SHORT = ("--lengths", "16,33", "--step", "1,20", "--mode", "decode,inference", "--quick")
SHORT += ("--budget", "none", "--device", "cpu")
QWEN = {**SMALL, **DELTA, "full_attention_interval": 4, "model_type": "qwen3_next"}
QWEN |= {"shared_expert_intermediate_size": 512}


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
    linear, full, experts = found["kinds"]
    assert experts["mechanism"] == ("experts[inner=16,number=4,shared=512,shared_gate=True,used=2]")
    assert (experts["layers"], experts["feeds"], experts["per_token"]) == (4, True, 0)
    assert (found["model_type"], found["dtype"]) == ("qwen3_next", "float32")
    assert (linear["layers"], full["layers"]) == (3, 1)
    assert linear["kept"]["33"] == 3 * 4 * (4 * 8 * 16 + 3 * (2 * 2 * 8 + 4 * 16))
    assert full["per_token"] == 4 * 2 * 2 * 16
    places = [(cost["mode"], cost["step"], cost["seq_len"]) for cost in full["costs"]]
    steps = [("decode", 1, 16), ("decode", 1, 33), ("decode", 20, 16), ("decode", 20, 33)]
    assert places == [*steps, ("inference", 1, 16), ("inference", 1, 33)]
    sums = {(cost["mode"], cost["step"], cost["seq_len"]): cost for cost in found["sum"]}
    assert {*places} - {*sums} == {("decode", 20, 16)}, "20 tokens do not end a context of 16"
    costs = (linear["costs"], full["costs"], experts["costs"])
    for place, *own in zip(places, *costs, strict=True):
        if place in sums:
            assert sum(cost["time_point"] for cost in own) == pytest.approx(
                sums[place]["time_point"]
            )
    assert full["costs"][3]["flops"] > 10 * full["costs"][1]["flops"], "of 20 tokens"
    one = 64 * (4 + 3 * (2 * 16 + 512) + 1)  # router, experts of a token, the shared one, its gate
    assert experts["costs"][0]["flops"] == 4 * 2 * one, "of all layers, however many in a row"
    for place in found["attention_share"]:
        of_kinds = place["attention_time"] + place["feed_forward_time"]
        at = place["mode"], place["step"], place["seq_len"]
        assert of_kinds == pytest.approx(sums[at]["time_point"])
        assert place["attention_share_point"] == pytest.approx(place["attention_time"] / of_kinds)
    assert len(found["attention_share"]) == len(sums)
    plan = load(qwen.parent / "sweep").plan
    w = plan[0].case.workload
    assert (w.width, w.heads, w.batch, w.dtype) == (64, 4, 1, "float32")
    # as many in a row as have the weights of the whole model
    rows = {row[0].name: len(row) for one in plan if (row := stacked(one.case.mechanism))}
    assert rows["gated_delta_net"] > rows["experts"] == 5


def test_layers_that_no_cache_holds_are_measured_one_at_a_time():
    given = {"lengths": (16,), "mode": ("decode",), "level": "attention", "heads": (16,)}
    chosen = {"grouped_query": 2, "feed_forward": 2}
    asked = request({**given, "width": (4096,), "device": "cpu", "models": tuple(chosen)})
    own = weight_bytes(asked)
    assert own["feed_forward"] == 4 * 3 * 4096 * 4 * 4096
    assert stacks(chosen, own) == ("grouped_query", "feed_forward")


def test_a_sweep_of_another_model_is_not_resumed(measured, qwen, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**SMALL, "model_type": "llama"}))
    said = refused("model", file, "--resume", qwen.parent / "sweep")
    assert "the sweep there is of another model" in said


def test_the_folder_is_an_ordinary_sweep_with_the_table_and_the_figure(qwen, measured):
    folder = qwen.parent / "sweep"
    assert {"layers.png", "layers.csv", "shares.csv", "decode.png", "report.html"} <= {
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
    assert "what an engine fuses. Experts: a random router" in " ".join(done.stdout.split())
    assert "Attention's share: qwen3_next, float32" in done.stdout


def test_feed_forwards_can_be_left_out(qwen):
    plan = json.loads(here("model", qwen, *SHORT, "--attention-only", "--dry-run", "--json").stdout)
    assert not [one for one in plan["cases"] if "experts" in str(one)]


def test_a_resumed_sweep_has_the_feed_forwards_that_it_began_with(tmp_path):
    file = tmp_path / "config.json"
    dense_first = {**QWEN, "mlp_only_layers": [0]}
    file.write_text(json.dumps(dense_first))
    found = measurable(file)
    chosen = mechanisms("config.json", found)
    linear, full, dense, experts = chosen
    assert resumed_layers(chosen, found, "x", (f"stack(3*{linear})", full, dense, experts)) == found
    alone = resumed_layers(chosen, found, "x", (linear, full))
    assert not [kind for kind in alone.kinds if kind.feeds]
    *_, known, lost = resumed_layers(chosen, found, "x", (linear, full, dense)).kinds
    assert (known.mechanism, lost.mechanism) == (dense, "")
    assert lost.reason == "the sweep that is resumed leaves it out"
    with pytest.raises(UsageError, match="the sweep there is of another model"):
        resumed_layers(chosen, found, "x", (linear, dense, experts))


def test_experts_that_do_not_fit_into_memory_are_not_measured_in_part(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**QWEN, "num_experts": 4096, "moe_intermediate_size": 1 << 16}))
    found = measurable(file)
    (name,) = (kind.mechanism for kind in found.kinds if kind.feeds)
    reasons = too_large(found, {name: 1 << 40}, "cpu")
    assert "the 1.000 TiB of its weights do not fit into the" in reasons[name]
    assert "measure it on a machine where they do" in reasons[name]
    assert not too_large(found, {name: 1 << 10}, "cpu")
    without = found.without(reasons)
    assert [kind.reason for kind in without.kinds if kind.feeds] == [reasons[name]]
    assert "experts" not in str(mechanisms(str(file), without))


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
    assert default_options({}) == {**USUAL}
    assert default_options({"mode": ("inference", "decode")}) == {**USUAL, "causal": True}
    assert "step" not in default_options({"mode": ("inference",)})


@pytest.mark.parametrize("modes", ["decode", "inference", "decode,inference"])
def test_the_options_that_follow_from_a_model_have_no_conflict(qwen, modes):
    options = ("--mode", modes, "--lengths", "16", "--device", "cpu")
    plan = json.loads(here("model", qwen, *options, "--dry-run", "--json").stdout)
    assert {case["mode"] for case in plan["cases"]} == {*modes.split(",")}
