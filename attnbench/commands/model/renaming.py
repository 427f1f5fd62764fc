"""What some types of models call a field, put under the name by which it is read here."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

# whatever the type: these names have one meaning
ALWAYS = MappingProxyType(
    {
        "n_layer": "num_hidden_layers",
        "n_layers": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_heads": "num_attention_heads",
        "n_embd": "hidden_size",
    }
)
BY_TYPE: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "chatglm": {
            "num_layers": "num_hidden_layers",
            "kv_channels": "head_dim",
            "multi_query_group_num": "num_key_value_heads",
        },
        "bailing_hybrid": {"short_conv_kernel_size": "linear_conv_kernel_dim"},
        "bloom": {"n_embed": "hidden_size"},
        "falcon": {"num_kv_heads": "num_key_value_heads"},
        "jetmoe": {"kv_channels": "head_dim"},
        "minimax_m3_vl": {
            "sparse_index_dim": "index_head_dim",
            "sparse_num_index_heads": "index_n_heads",
        },
        "lfm2": {"tie_embedding": "tie_word_embeddings", "block_ff_dim": "intermediate_size"},
        "lfm2_moe": {"tie_embedding": "tie_word_embeddings"},
        "mpt": {"d_model": "hidden_size", "kv_n_heads": "num_key_value_heads"},
        "dbrx": {"d_model": "hidden_size", "kv_n_heads": "num_key_value_heads"},
        "step3p5": {"num_attention_groups": "num_key_value_heads"},
        "xglm": {
            "num_layers": "num_hidden_layers",
            "attention_heads": "num_attention_heads",
            "d_model": "hidden_size",
        },
        "zamba": {"attention_head_dim": "head_dim"},
        "zamba2": {
            "attention_head_dim": "head_dim",
            "mamba_ngroups": "mamba_n_groups",
            "n_mamba_heads": "mamba_n_heads",
            "mamba_headdim": "mamba_d_head",
        },
    }
)
# fields that follow from others unless the file has them
COPIED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"bailing_hybrid": {"linear_num_heads": "num_attention_heads", "linear_head_dim": "head_dim"}}
)


def with_known_names(values: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The fields by the names that are read here, and one that says twice what differs, or none."""
    kind = str(values.get("model_type"))
    result = dict(values)
    _replace_counts(kind, result)
    for name, known_name in (ALWAYS | BY_TYPE.get(kind, {})).items():
        if name not in result:
            continue
        value = result.pop(name)
        if value is not None and result.get(known_name) not in (None, value):
            return dict(values), name
        if value is not None:
            result[known_name] = value
    for name, source in COPIED.get(kind, {}).items():
        if result.get(name) is None and source in result:
            result[name] = result[source]
    return result, ""


def _replace_counts(kind: str, values: dict[str, Any]) -> None:
    """Put in place what follows of heads of keys, or of layers, from other fields."""
    if kind == "falcon":
        values.pop("num_key_value_heads", None)  # which has no effect there
        grouped = values.pop("new_decoder_architecture", False)
        if values.pop("multi_query", True) and not grouped:
            values["num_kv_heads"] = 1
        elif not grouped:
            values.pop("num_kv_heads", None)
    if kind in ("mimo_v2", "mimo_v2_flash") and type(values.get("sliding_window_size")) is int:
        values["sliding_window"] = values.pop("sliding_window_size") + 1  # with the query itself
    if kind in ("lfm2", "lfm2_moe"):
        for name, known_name in BY_TYPE[kind].items():  # which transformers takes before the other
            if name in values:
                values.pop(known_name, None)
    if kind == "dbrx" and "kv_n_heads" in values:
        values.pop("num_key_value_heads", None)  # which has no effect beside it
    if kind == "mpt" and values.get("attn_type") == "multiquery_attention":
        values["num_key_value_heads"] = 1
    if kind == "hunyuan_v1_moe":
        for name in ("moe_topk", "num_shared_expert", "moe_intermediate_size"):
            entries = values.get(name)
            if isinstance(entries, list) and entries and entries.count(entries[0]) == len(entries):
                values[name] = entries[0]
    if kind == "gpt_bigcode" and values.pop("multi_query", True):
        values["num_key_value_heads"] = 1
    if kind == "longcat_flash" and type(values.get("num_layers")) is int:
        values["num_hidden_layers"] = 2 * values.pop("num_layers")  # attention twice in each
    if kind == "chatglm" and not values.pop("multi_query_attention", False):
        values.pop("multi_query_group_num", None)
