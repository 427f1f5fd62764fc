"""`attnbench bytes` as a user meets it."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.commands.commands import here, refused

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
    file.write_text(json.dumps({**fields, "layer_types": ["full_attention"] * 2}))
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
