"""The plan of a model on cards: its weights, what fits, and what is not counted."""

import pytest

from attnbench.errors import UsageError
from tests.commands.model.planned import GIB, planned
from tests.commands.model.test_parameters import GPT_OSS, LLAMA_8B


def test_what_quantized_weights_need_is_not_guessed(tmp_path):
    found = planned(tmp_path, GPT_OSS)
    assert found.weights.total is None
    assert not found.requests
    assert found.parameters == 116_829_156_672
    said = planned(tmp_path, GPT_OSS, weights="60GiB")
    assert said.weights.total == 60 * GIB
    assert planned(tmp_path, GPT_OSS, files=59 * GIB).weights.total == 59 * GIB


def test_files_that_cannot_be_all_weights_do_not_count(tmp_path):
    found = planned(tmp_path, GPT_OSS, files=14 * 10**9)  # 116.8e9 parameters
    assert found.weights.total is None
    assert "The files of weights beside it have 13.04 GiB, less than a bit" in found.remarks[0]
    assert planned(tmp_path, GPT_OSS, files=15 * 10**9).weights.total == 15 * 10**9
    assert planned(tmp_path, LLAMA_8B, files=136).weights.total == 2 * 8_030_261_248


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kv_cache_dtype": "fp8"}, "'kv_cache_dtype'"),
        ({"quantization_config": {"kv_cache_scheme": {"num_bits": 8}}}, "'kv_cache_scheme'"),
        ({"mamba_ssm_cache_dtype": "bfloat16"}, "States are counted in float32"),
    ],
)
def test_number_types_of_caches_that_a_file_names_are_said(fields, words, tmp_path):
    (remark,) = planned(tmp_path, LLAMA_8B | fields).cache_remarks
    assert words in remark
    for silent in ({"kv_cache_dtype": "auto"}, {"mamba_ssm_dtype": "float32"}, {}):
        assert not planned(tmp_path, LLAMA_8B | silent).cache_remarks


@pytest.mark.parametrize("name", ["quantization_config", "quantization"])
def test_weights_of_files_that_are_quantized_have_no_width_of_their_own(name, tmp_path):
    quantized = LLAMA_8B | {name: {"group_size": 64, "bits": 4}}
    assert planned(tmp_path, quantized).weights.total is None


def test_bits_need_a_count_of_parameters(tmp_path):
    with pytest.raises(UsageError, match=r"'vocab_size' is missing.*--weights 60GiB"):
        planned(tmp_path, LLAMA_8B | {"vocab_size": None}, weights="8")


def test_what_of_a_model_is_not_counted_is_said(tmp_path):
    nested = {"model_type": "llava", "tie_word_embeddings": True, "text_config": LLAMA_8B}
    found = planned(tmp_path, nested)
    assert found.remarks == (
        "Only the model of text is counted, no other part, as encoders of images or sounds.",
    )
    assert found.parameters == 8_030_261_248 - 128_256 * 4_096
    ahead = planned(tmp_path, LLAMA_8B | {"num_nextn_predict_layers": 1})
    assert "'num_nextn_predict_layers'" in ahead.remarks[0]
    silent = planned(tmp_path, {**LLAMA_8B, "dtype": None, "torch_dtype": None})
    assert silent.remarks == ("The file names no number type: bfloat16 is taken.",)
    assert silent.weights.total == 2 * 8_030_261_248
