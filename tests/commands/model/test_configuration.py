"""A configuration file as its fields: what is missing or wrong is named."""

import json

import pytest

from attnbench.commands.model.configuration import INDEX, ConfigurationFields, fields, weight_bytes
from attnbench.errors import UsageError
from tests.commands.model.planned import written
from tests.commands.model.test_configured_layers import GEMMA, counted


@pytest.mark.parametrize("own", [[1], {"first": {}}, {"1": 32}])
def test_fields_of_single_layers_that_cannot_be_read_are_said(own, tmp_path):
    with pytest.raises(UsageError, match="write the fields of a layer under its number"):
        counted(tmp_path, GEMMA | {"per_layer_config": own}, 100)


def configuration(**values):
    """The fields of a file of which only these matter."""
    return ConfigurationFields("config.json", values)


@pytest.mark.parametrize("value", [0, -1, 1 << 21, 4.0, True, "4", [4]])
def test_what_is_no_size_is_refused_with_its_bounds(value):
    said = r"'heads' is .*; write a whole number from 1 to 1,048,576"
    with pytest.raises(UsageError, match=said):
        configuration(heads=value).size("heads")


def test_a_size_is_that_of_the_first_name_that_has_a_value():
    fields_ = configuration(one=None, two=2, three=3)
    assert fields_.size("one", "two", "three") == 2
    assert fields_.size("none", default=7) == 7
    assert fields_.size("two", least=2, most=2) == 2
    with pytest.raises(UsageError, match="'one' or 'none' is missing; add it"):
        fields_.size("one", "none")


def test_a_list_is_of_texts_or_numbers_and_a_text_of_its_letters():
    assert configuration(kinds="M-*").list_of("kinds") == ["M", "-", "*"]
    assert configuration(kinds=[0, "a"]).list_of("kinds") == [0, "a"]
    for value in ([], "", None, [None], {"a": 1}):
        with pytest.raises(UsageError, match="write a list with an entry for each layer"):
            configuration(kinds=value).list_of("kinds")


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ({"torch_dtype": "torch.float16"}, "float16"),
        ({"dtype": "bfloat16", "torch_dtype": "float32"}, "bfloat16"),
        ({"dtype": {"text": "float16"}, "torch_dtype": "float32"}, "float32"),
        ({}, ""),
    ],
)
def test_the_number_type_is_the_first_that_is_named(values, dtype):
    assert configuration(**values).dtype == dtype


def test_a_layer_reads_its_own_fields_and_those_of_its_kind():
    whole = configuration(
        model_type="mimo_v2",
        head_dim=16,
        swa_head_dim=8,
        global_head_dim=64,
        per_layer_config={"01": {"head_dim": 32}},
        num_attention_heads_per_layer=[4, 8],
    )
    first, second = (whole.of_layer(index, "full_attention") for index in (0, 1))
    assert (first.size("head_dim"), second.size("head_dim")) == (16, 32)
    assert (first.size("num_attention_heads"), second.size("num_attention_heads")) == (4, 8)
    assert not first.has("global_head_dim"), "of no effect beside fields of single layers"
    assert whole.of_layer(0, "sliding_attention").size("head_dim") == 8
    assert whole.values["head_dim"] == 16


def test_a_model_of_images_has_the_fields_of_its_text_and_those_that_both_share(tmp_path):
    inner = {"num_hidden_layers": 2, "tie_word_embeddings": True}
    outer = {"model_type": "llava", "dtype": "float16", "hidden_size": 9, "text_config": inner}
    found = fields(written(tmp_path, outer))
    assert found.text_only
    assert (found.type, found.dtype, found.layers) == ("llava", "float16", 2)
    assert not found.has("hidden_size")
    alone = fields(written(tmp_path, {"model_type": "llama", "n_layer": 3}))
    assert (alone.text_only, alone.layers) == (False, 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON; give the config.json of a model"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not a model's configuration: no 'model_type' or 'num_hidden_layers'"),
        ('{"a": 1}', "is not a model's configuration"),
        ('{"model_type": "mpt", "d_model": 8, "hidden_size": 9}', "is another name of a field"),
    ],
)
def test_what_is_no_configuration_is_refused_in_one_line(text, said, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError, match=said) as caught:
        fields(tmp_path / "config.json")
    assert len(str(caught.value).splitlines()) == 1


def test_the_bytes_of_weights_are_those_that_their_index_states_or_of_one_file(tmp_path):
    config = tmp_path / "config.json"
    assert weight_bytes(config) is None
    (tmp_path / "model.safetensors").write_bytes(bytes(100))
    assert weight_bytes(config) == 100
    index = tmp_path / INDEX
    index.write_text('{"metadata": {"total_size": 75161927680}, "weight_map": {}}')
    assert weight_bytes(config) == 75_161_927_680
    for unknown in ('{"weight_map": {}}', '{"metadata": {"total_size": 0}}'):
        index.write_text(unknown)
        assert weight_bytes(config) is None


def test_what_stands_for_weights_that_were_not_downloaded_has_their_size(tmp_path):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 16060522496\n"
    (tmp_path / "model.safetensors").write_text(pointer)
    assert weight_bytes(tmp_path / "config.json") == 16_060_522_496
    (tmp_path / "model.safetensors").write_text(pointer.replace("size", "sizes"))
    assert weight_bytes(tmp_path / "config.json") is None


LLAMA = {"model_type": "llama", "num_hidden_layers": 2}


@pytest.mark.parametrize(
    "values",
    [
        {"model_type": "internvl_chat", "llm_config": LLAMA},
        {"model_type": "deepseek_vl_v2", "language_config": LLAMA},
        {"model_type": "qwen2_5_omni", "thinker_config": {"text_config": LLAMA}},
    ],
)
def test_the_part_that_writes_text_is_read_under_any_name_of_it(values, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**values, "dtype": "float16"}))
    config = fields(tmp_path / "config.json")
    assert (config.type, config.layers, config.dtype) == ("llama", 2, "float16")
    assert config.text_only


def test_a_field_that_is_there_twice_is_refused_unless_it_says_the_same(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "llama", "head_dim": 8, "head_dim": 8}')
    assert fields(file).size("head_dim") == 8
    file.write_text('{"model_type": "llama", "head_dim": 8, "head_dim": 16}')
    with pytest.raises(UsageError, match="'head_dim' is there twice with two values; keep one"):
        fields(file)


def test_a_number_type_that_is_no_name_is_refused():
    for wrong in (5, ["bfloat16"], True):
        with pytest.raises(UsageError, match=r"'torch_dtype' is .*; write a name, as 'bfloat16'"):
            configuration(torch_dtype=wrong).dtype  # noqa: B018


def test_fields_of_a_layer_beyond_the_last_are_refused():
    config = configuration(num_hidden_layers=2, per_layer_config={"2": {"head_dim": 8}})
    with pytest.raises(UsageError, match="has layer 2, and the last of 2 is 1"):
        config.of_layer(0, "full_attention")
