"""Fields that may change a size: read, or refused by their names."""

import pytest

from attnbench.commands.model.configuration import ConfigurationFields
from attnbench.commands.model.unread import (
    refuse_at_once,
    refuse_missing,
    refuse_unread,
    refuse_unused,
)
from attnbench.errors import UsageError
from tests.commands.model.test_configured_layers import LLAMA, counted


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"use_cla": True, "cla_share_factor": 2}, "use_cla"),
        ({"cla_share_factor": 2}, "cla_share_factor"),
        ({"some_config": {"kv_n_heads": 2}}, "some_config"),
        ({"block_configs": [{"attention": {"n_heads_in_group": 8}}]}, "block_configs"),
        ({"attn_config": {"kv_n_heads": 2}}, "kv_n_heads"),
        ({"multi_query_attention": True, "multi_query_group_num": 2}, "multi_query_attention"),
        ({"kv_channels": 128}, "kv_channels"),
        ({"num_attention_groups": 2}, "num_attention_groups"),
        ({"attention_other_setting": {"num_attention_heads": 8}}, "attention_other_setting"),
        ({"sparse_attention_config": {"sparse_index_dim": 8}}, "sparse_index_dim"),
        ({"mamba_d_ssm": 32}, "mamba_d_ssm"),
        ({"cca_time0": 2}, "cca_time0"),
        ({"per_layer_config": {"01": {"some_kv_heads": 1}}}, "some_kv_heads"),
        ({"model_type": "new", "layer_types": ["full_attention"] * 4, "ssm_state_size": 8}, "ssm_"),
        ({"model_type": "new", "layer_types": ["full_attention"] * 4, "index_topk": 8}, "index_"),
    ],
)
def test_a_field_that_may_change_a_size_is_read_or_refused_by_its_name(fields, name, tmp_path):
    with pytest.raises(UsageError, match=f"'{name}.*so the bytes could be wrong"):
        counted(tmp_path, {**LLAMA, **fields}, 1)


def configuration(**values):
    """The fields of a file of which only these matter."""
    return ConfigurationFields("config.json", values)


@pytest.mark.parametrize("value", [None, 0, False, "", [], {}])
def test_a_field_that_says_nothing_changes_nothing(value):
    refuse_unread(configuration(model_type="llama", use_cla=value, mamba_d_ssm=value))


def test_what_of_other_parts_has_sizes_is_let_pass():
    sizes = {"head_dim": 8, "num_key_value_heads": 2}
    for name in ("vision_config", "rope_scaling", "quantization_config"):
        refuse_unread(configuration(model_type="llama", **{name: sizes}))
    refuse_unread(configuration(model_type="llama", use_cla=False, cla_share_factor=2))


@pytest.mark.parametrize(
    "name", ["vision_config", "rope_scaling", "num_experts_per_tok", "attention_bias", "chunk_size"]
)
def test_what_no_cache_holds_is_let_pass(name):
    refuse_unread(configuration(model_type="llama", **{name: 8}))


def test_a_field_of_one_type_is_refused_in_others():
    refuse_unread(configuration(model_type="zaya", cca_time0=2))
    with pytest.raises(UsageError, match="'cca_time0' is not read here"):
        refuse_unread(configuration(model_type="llama", cca_time0=2))


def test_a_second_name_of_a_size_must_say_the_same():
    refuse_unread(configuration(model_type="lfm2", conv_dim=64, hidden_size=64))
    with pytest.raises(UsageError, match="'conv_dim' is not read here"):
        refuse_unread(configuration(model_type="lfm2", conv_dim=32, hidden_size=64))


@pytest.mark.parametrize(
    ("kind", "name"), [("deepseek_v3", "kv_lora_rank"), ("mistral", "sliding_window")]
)
def test_a_type_that_has_a_size_of_its_own_needs_the_field(kind, name):
    with pytest.raises(UsageError, match=f"'{name}' is missing; add it, null where there is none"):
        refuse_missing(configuration(model_type=kind))
    refuse_missing(configuration(model_type=kind, **{name: None}))
    refuse_missing(configuration(model_type="llama"))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model_type": "xlm_roberta_bert"}, "is named as a part of one that reads its whole"),
        ({"model_type": "new_vision"}, "is named as a part of one"),
        ({"model_type": "new", "is_decoder": False}, "'is_decoder' is false, as of one"),
        ({"model_type": "new", "type_vocab_size": 2}, "'type_vocab_size' is of one"),
        ({"model_type": "new"}, "'use_cache': true if it writes token by token"),
        ({"model_type": "new", "use_cache": True}, ""),
        ({"model_type": "llama"}, ""),
        ({}, ""),
    ],
)
def test_a_model_that_may_keep_no_context_is_refused(values, said):
    if not said:
        refuse_at_once(configuration(**values))
        return
    with pytest.raises(UsageError, match=said):
        refuse_at_once(configuration(**values))


def test_a_state_that_no_layer_reads_is_refused_where_the_type_is_not_known():
    values = {"ssm_state_size": 8, "model_type": "new"}
    refuse_unused(configuration(**values), ["linear_attention", "full_attention"])
    refuse_unused(configuration(**values | {"model_type": "falcon_h1"}), ["full_attention"])
    with pytest.raises(UsageError, match="'ssm_state_size' is of a kind of layer that the file"):
        refuse_unused(configuration(**values), ["full_attention"])


@pytest.mark.parametrize(
    ("name", "value"),
    [("use_bidirectional_attention", True), ("use_bidirectional_attention", "all")]
    + [("is_causal", False)],
)
def test_a_model_of_any_type_that_sees_all_keeps_no_context(name, value):
    with pytest.raises(UsageError, match=f"'{name}' is .*reads its whole input at once"):
        refuse_at_once(configuration(model_type="gemma3_text", **{name: value}))
    for causal in ({"is_causal": True}, {"use_bidirectional_attention": "vision"}, {}):
        refuse_at_once(configuration(model_type="gemma3_text", **causal))


def test_widths_of_layers_of_full_attention_are_those_of_the_file_or_of_its_layers():
    with pytest.raises(UsageError, match="'global_head_dim' is missing"):
        refuse_missing(configuration(model_type="gemma4_text"))
    refuse_missing(configuration(model_type="gemma4_text", per_layer_config={"0": {}}))
    refuse_missing(configuration(model_type="gemma4_text", global_head_dim=8))
