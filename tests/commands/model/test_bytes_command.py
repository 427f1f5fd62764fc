"""`attnbench bytes` as a user meets it."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.commands.commands import here, refused
from tests.commands.model.test_parameters import MIXTRAL

DATA = Path(__file__).parents[2] / "data" / "configurations"
KIMI = DATA / "kimi-linear-48b.json"


def test_each_kind_of_layer_has_a_row():
    done = here("bytes", KIMI, "--lengths", "32k", "--memory", "80GiB")
    assert not done.stderr
    title, upper, heading, linear, latent, whole, halved, full, *note = done.stdout.splitlines()
    assert title == "Bytes of the context: kimi_linear, bfloat16"
    assert heading.split() == ["Kind", "of", "layer", "Layers", "token", "32K", "80", "GiB"]
    assert upper.split() == ["Per", "Longest", "in"]
    assert linear.startswith("linear, state 32 × 128 × 128, convolution 4 ")
    assert "41.41 MiB" in linear
    assert "8,064 B" in latent
    assert whole.split()[-1] == "10,646,816"
    assert halved.startswith("all layers, 8 bits")
    assert "41.41 MiB" not in halved
    assert "166.7 MiB" in halved, "states stay float32"
    assert "31,104 B" in full
    assert "would need 3.31× at 32K. Weights are extra." in note[0]


def test_json_has_the_numbers():
    done = here("bytes", KIMI, "--lengths", "1k", "--json")
    found = json.loads(done.stdout)
    assert (found["model_type"], found["dtype"]) == ("kimi_linear", "bfloat16")
    assert [row["layers"] for row in found["rows"]] == [20, 7, 27, 27, 27]
    assert found["rows"][1]["at"] == [7 * 576 * 2 * 1024]
    assert found["rows"][2]["longest"] is None


def test_a_model_is_fetched_from_the_hub_with_the_size_of_its_weights(tmp_path, monkeypatch):
    def download(model, name):
        assert model == "moonshotai/Kimi"
        if name == "config.json":
            return shutil.copy(KIMI, tmp_path / name)
        (tmp_path / name).write_text('{"metadata": {"total_size": 75161927680}, "weight_map": {}}')
        return str(tmp_path / name)

    hub = SimpleNamespace(hf_hub_download=download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    done = here("bytes", "moonshotai/Kimi", "--memory", "80GiB", "--json")
    found = json.loads(done.stdout)
    assert found["rows"][-1]["at"] == [75161927680] * 3
    assert found["rows"][2]["longest"] == (10 * 2**30 - 20 * (2**21 + 73_728)) // 8_064
    monkeypatch.setattr(hub, "hf_hub_download", lambda *_: 1 / 0)
    refusal = refused("bytes", "moonshotai/Kimi")
    assert (
        "cannot be fetched from the Hugging Face Hub: ZeroDivisionError: division by zero"
        in refusal
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "pip install 'attnbench[hub]'" in refused("bytes", "moonshotai/Kimi")


def test_a_type_of_model_that_was_not_compared_is_said(tmp_path):
    file = tmp_path / "config.json"
    fields = {"num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8}
    fields["layer_types"] = ["full_attention"] * 2
    file.write_text(json.dumps(fields))
    assert "'num_key_value_heads' is missing; add it" in refused("bytes", file)
    file.write_text(json.dumps({**fields, "num_key_value_heads": 4}))
    done = here("bytes", file, "--lengths", "1k")
    assert done.stderr.startswith("warning: model type 'None' was not compared with transformers;")
    assert "256 B" in done.stdout


@pytest.mark.parametrize(
    ("written", "counted"),
    [("torch.float32", "float32"), ("float8_e4m3fn", "bfloat16")],
)
def test_the_number_type_is_that_of_the_file_or_said(written, counted, tmp_path):
    file = tmp_path / "config.json"
    fields = {**json.loads(KIMI.read_text()), "dtype": written}
    file.write_text("\ufeff" + json.dumps(fields), encoding="utf-8")
    done = here("bytes", file)
    assert f": kimi_linear, {counted}\n" in done.stdout
    assert ("is counted as" in done.stderr) == (counted not in written)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((KIMI, "--memory", "80"), "--memory '80' is not a size of memory; write 8GiB or 512MiB"),
        ((DATA / "none.json",), "cannot be read: No such file or directory"),
        ((DATA,), "cannot be read: Is a directory"),
        ((Path(__file__),), "is not JSON; give the config.json of a model"),
    ],
)
def test_a_mistake_is_one_line_with_the_way_out(arguments, message):
    assert message in refused("bytes", *arguments)


@pytest.fixture
def mixtral(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(MIXTRAL))
    return file


def test_weights_and_requests_have_tables(mixtral):
    done = here("bytes", mixtral, "--lengths", "32k", "--memory", "80GiB", "--gpus", "2")
    assert not done.stderr
    lines = done.stdout.splitlines()
    assert "Weights: mixtral" in lines
    (experts,) = [line.split() for line in lines if line.startswith("experts")]
    assert experts == [
        "experts",
        "45,097,156,608",
        "11,274,289,152",
        "84.00",
        "GiB",
        *["42.00", "GiB"],
    ]
    assert (
        "Requests that fit in 2 × 80 GiB beside the weights: mixtral, bfloat16 in caches" in lines
    )
    (needed,) = [line for line in lines if line.startswith("as the layers need  ")]
    assert needed.split()[-3:] == ["2.000", "GiB", "18"]
    assert "Not counted: activations, workspace, fragmentation" in done.stdout


def test_json_has_the_weights_and_requests_of_the_tables(mixtral):
    arguments = ("--lengths", "32k", "--memory", "80GiB", "--gpus", "2", "--json")
    found = json.loads(here("bytes", mixtral, *arguments).stdout)
    assert found["parameters"] == 46_702_792_704
    assert found["active_parameters"] == 12_879_925_248
    assert found["weights"] == 2 * found["parameters"]
    assert found["weights_from"] == "counted"
    assert sum(part["bytes"] for part in found["parts"]) == found["weights"]
    assert sum(part["bytes_on_card"] for part in found["parts"]) == found["weights_on_card"]
    assert found["requests"][0]["requests"] == [18]
    longest = found["rows"][1]["longest"]
    assert longest == (80 * 2**30 - found["weights_on_card"]) // (131_072 // 2)


def test_a_model_that_does_not_fit_is_told_how_many_cards_it_needs(mixtral):
    told = here("bytes", mixtral, "--lengths", "32k", "--memory", "80GiB").stdout
    assert (
        "No request of 32K fits: the weights need 86.99 GiB of the card; 2 such cards hold" in told
    )


def test_weights_that_are_not_counted_are_said_with_the_reason():
    told = here("bytes", KIMI, "--memory", "80GiB").stdout
    assert "Weights are extra. Parameters are not counted: 'vocab_size' is missing" in told
    assert "--weights 60GiB" in told
    assert "Requests that fit" not in told
    given = here("bytes", KIMI, "--memory", "80GiB", "--weights", "60GiB").stdout
    assert "Requests that fit in 80 GiB" in given


def test_the_size_of_files_beside_a_configuration_is_used_and_said(mixtral):
    with open(mixtral.parent / "model.safetensors", "wb") as file:
        file.truncate(87 << 30)
    told = here("bytes", mixtral, "--memory", "80GiB", "--gpus", "2").stdout
    assert "The weights' bytes are those of the safetensors files" in " ".join(told.split())
    (row,) = [line.split() for line in told.splitlines() if line.startswith("files beside it")]
    assert row[-4:-2] == ["87.00", "GiB"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gpus", "0"), "--gpus 0 is not a number of cards from 1 to 1,024"),
        (("--weights", "80"), "--weights '80' is neither bits of a number up to 64 nor a size"),
        (("--weights", "8"), "'vocab_size' is missing; add it; write the bytes of all weights"),
    ],
)
def test_a_mistake_in_cards_or_weights_is_one_line(arguments, message):
    assert message in refused("bytes", KIMI, *arguments)
