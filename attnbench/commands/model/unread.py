"""Fields of a configuration that may change what a layer keeps and that nothing here reads."""

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

from attnbench.commands.model import orders
from attnbench.commands.model.configuration import (
    IN_PLACE_OF,
    PER_LAYER,
    ConfigurationFields,
)

# what the names of fields hold that say how much of the context a layer keeps
SIZES = re.compile(
    "kv|head|group|mamba|ssm|state|conv|index|sparse|window|share|cla(?!ss|mp|use)|latent|rank"
    "|compress|mixer|pattern|channels|kpool|layer_ids|cca|chunk|cross_attention|encoder_layers"
    "|recurrent|loop|cycles|ut_steps|multi_query"
)
READ = frozenset(
    (
        *("num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim"),
        *("global_head_dim", "num_global_key_value_heads", "num_attention_heads_per_layer"),
        *("sliding_window", "use_sliding_window", "max_window_layers", "sliding_window_pattern"),
        *("attention_chunk_size", "num_kv_shared_layers", "attention_k_eq_v"),
        *("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "q_lora_rank", "qk_head_dim"),
        *("index_head_dim", "indexer_types", "index_topk_pattern", "index_skip_topk_offset"),
        *("index_topk_freq", "index_topk", "index_n_heads", "compress_rates", "compress_ratios"),
        *("linear_num_value_heads", "linear_value_head_dim", "linear_key_head_dim"),
        *("linear_num_key_heads", "linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"),
        *("linear_short_conv_kernel_size", "linear_full_attn_layers", "linear_kda_layers"),
        *("mamba_d_conv", "conv_kernel", "conv_L_cache", "mamba_d_state", "ssm_state_size"),
        *("state_size", "mamba_n_groups", "n_groups", "mamba_num_heads", "mamba_head_dim"),
        *("mamba_expand", "mamba_n_heads", "mamba_d_head", "num_heads", "full_attn_idxs"),
        *("hybrid_override_pattern", "linear_attn_config", "sparse_attention_config", "q_head_dim"),
        "attn_config",
    )
)
# read in files of some types alone, or known to change nothing there
OF_TYPE: Mapping[str, Collection[str]] = MappingProxyType(
    {
        "afmoe": ("num_limited_groups",),
        "axk2": ("gated_norm_rank",),
        "bailing_hybrid": ("group_norm_size",),
        "bamba": ("attn_layer_indices",),
        "falcon_h1": (
            "mamba_d_ssm",
            "lm_head_multiplier",
            "ssm_in_multiplier",
            "ssm_out_multiplier",
        )
        + ("ssm_multipliers", "mamba_norm_before_gate", "mamba_rms_norm", "projectors_bias"),
        "kimi_linear": ("latent_moe_use_norm",),
        "minimax_m2": ("shared_moe_mode",),
        "minimax_text_01": ("shared_moe_mode",),
        "nemotron_h": ("moe_latent_size",),
        "zaya": ("cca_time0", "cca_time1"),
        "minimax_m3_vl": ("sparse_attention_freq", "sparse_local_block", "sparse_score_type")
        + ("use_sparse_attention", "sparse_block_size", "sparse_topk_blocks"),
        "minimax_m3_vl_text": ("index_block_size", "index_local_blocks", "index_topk_blocks"),
        **dict.fromkeys(
            ("mimo_v2", "mimo_v2_flash"),
            ("swa_head_dim", "swa_v_head_dim", "swa_num_attention_heads")
            + ("swa_num_key_value_heads", "hybrid_layer_pattern"),
        ),
        "step3p5": ("num_sliding_attention_heads", "share_expert_dim", "attention_other_setting"),
        "cohere2_moe": ("prefix_dense_sliding_window_pattern",),
        "evolla": ("resampler_dim_head", "resampler_heads", "resampler_num_latents")
        + ("aligner_num_add_layers",),
        "zamba": ("n_mamba_heads", "attention_hidden_size", "attn_layer_offset")
        + ("attn_layer_period",),
        "zamba2": ("adapter_rank", "hybrid_layer_ids", "kv_channels", "num_query_groups")
        + ("use_shared_attention_adapter", "use_shared_mlp_adapter", "attention_hidden_size"),
    }
)
# which hold the same wherever a file is read right: another size of the same thing is refused
EQUAL: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "lfm2": {"conv_dim": "hidden_size", "conv_dim_out": "hidden_size"},
        "lfm2_moe": {"conv_dim": "hidden_size", "conv_dim_out": "hidden_size"},
        "hunyuan_v1_moe": {"attention_head_dim": "head_dim"},
        "hunyuan_v1_dense": {"attention_head_dim": "head_dim"},
        "step3p5": {"true_head_dim": "head_dim"},
        # indexes without values in all layers that have one
        "minimax_m3_vl": {"sparse_disable_index_value": "sparse_attention_freq"},
    }
)
# parts of a file that are of other parts of a model, of positions, or of how numbers are stored
OTHER_PARTS = re.compile(
    "(^|_)vq_|vision|audio|image|video|speech|rope|quant|generation|task_specific"
)
# of experts, biases, positions, kernels, training, tokens, layers that predict further ones, and
# the output's head, none of which a cache holds
FREE = re.compile(
    "experts?(_|$)|expert_|(^|_)(bias|dropout|dtype|act|eps|theta|scaling|std|init|range)($|_)"
    "|(image|video|audio|token|pad|bos|eos)_(token_)?index|rope|_loss|^mtp_|lm_head|swiglu"
)
FREE_NAMES = frozenset(
    (
        *("n_group", "topk_group", "num_expert_group", "decoder_sparse_step", "use_mamba_kernels"),
        *("chunk_size", "mamba_chunk_size", "chunk_size_feed_forward", "time_step_rank"),
        *("mamba_dt_rank", "hidden_size_per_layer_input", "vocab_size_per_layer_input"),
        *("shared_intermediate_size", "laurel_rank", "activation_sparsity_pattern", "o_groups"),
        *("o_lora_rank", "_sliding_window_pattern", "output_hidden_states", "layer_group_size"),
        *("is_encoder_decoder", "tie_encoder_decoder", "use_shared_embedding", "head_dtype"),
        *("linear_gate_lower_bound", "linear_use_full_rank_gate", "mla_use_output_gate"),
        *("seconds_per_chunk", "num_code_groups", "mlp_only_layers", "use_head_wise_attn_gate"),
        *("linear_num_key_value_heads", "mamba_proj_bias", "index_share_for_mtp_iteration"),
        *("per_layer_config", "lm_head_bias", "pruned_heads", "embedding_rank"),
        *("moe_layer_start_index", "moe_layer_end_index", "use_grouped_topk", "use_grouped_mm"),
        *("num_beam_groups", "clip_qkv"),
    )
)


def refuse_unread(config: ConfigurationFields) -> None:
    """Raise `UsageError` at the first field that may change sizes and is not read.

    Fields that are empty, zero or false change nothing.
    """
    for name, value in config.values.items():
        plain = name in READ or name in FREE_NAMES or name in OF_TYPE.get(config.type, ())
        same = EQUAL.get(config.type, {}).get(name)
        plain = plain or (same is not None and value == config.values.get(same))
        if name == "cla_share_factor" and config.values.get("use_cla") is False:
            continue  # it says how many layers share a cache, if any do
        if not value or plain or name.endswith("vision_config"):
            continue
        inner = _size_within(name, value)
        if inner is not None:
            raise config.error(
                f"{name!r} has {inner!r}, which is not read here, so the bytes could be wrong"
            )
        if SIZES.search(name) and not FREE.search(name):
            raise config.error(f"{name!r} is not read here, so the bytes could be wrong")


def _size_within(name: str, value: object) -> str | None:
    """A field that may change sizes, in a dictionary or a list of them; None without one."""
    if OTHER_PARTS.search(name):
        return None
    for part in value if isinstance(value, list) else [value]:
        for inner, entry in part.items() if isinstance(part, dict) else ():
            if not entry or inner in FREE_NAMES:
                continue
            if isinstance(entry, dict) and (deeper := _size_within(inner, entry)) is not None:
                return deeper
            if inner in READ or (SIZES.search(inner) and not FREE.search(inner)):
                return str(inner)
    return None


# fields whose absence means another size than none, by the types of models in which it does
NEEDED: Mapping[str, Collection[str]] = MappingProxyType(
    {
        "kv_lora_rank": (
            *("axk1", "axk2", "bailing_hybrid", "deepseek_v2", "deepseek_v3", "deepseek_v32"),
            *("dots3_note_text", "glm4_moe_lite", "glm_moe_dsa", "hy_v4", "hy_v4_vl_text"),
            *("kimi_k2", "kimi_linear", "longcat_flash", "minicpm3", "mistral4", "sarvam_mla"),
            "youtu",
        ),
        "attn_config": ("dbrx",),
        "head_dim": ("zamba", "zamba2"),
        "indexer_types": ("hy_v4", "hy_v4_vl_text"),
        "num_kv_shared_layers": ("gemma3n_text",),
        "v_head_dim": ("mimo_v2", "mimo_v2_flash"),
        "global_head_dim": ("gemma4_text", "gemma4_unified_text"),
        "sliding_window": ("mistral", "moshi", "voxtral_realtime_text"),
    }
)


def refuse_missing(config: ConfigurationFields) -> None:
    """Raise `UsageError` where a type of model has a size of its own for a field that is absent."""
    for name, types in NEEDED.items():
        if name in IN_PLACE_OF and config.has(PER_LAYER):
            continue
        if config.type in types:
            config.require(name)


# what the types of models are called that read all of their input at once
AT_ONCE = re.compile("(^|_)(vision|encoder|decoder|audio)(_|$)|bert($|_)|^t5")


def refuse_at_once(config: ConfigurationFields) -> None:
    """Raise `UsageError` for a model that keeps no context, or of unknown type that may keep none.

    What reads its whole input at once has layers of attention like others.
    """
    sees_all = config.values.get("use_bidirectional_attention") in (True, "all")
    if sees_all or config.values.get("is_causal") is False:
        name = "use_bidirectional_attention" if sees_all else "is_causal"
        raise config.error(
            f"{name!r} is {config.values[name]!r}, as of a model that reads its whole input at"
            " once, so it keeps no context"
        )
    if config.type in orders.ORDERS or not config.has("model_type"):
        return
    sign = ""
    if AT_ONCE.search(config.type):
        sign = f"model type {config.type!r} is named as a part of one"
    elif config.values.get("is_decoder") is False:
        sign = "'is_decoder' is false, as of one"
    else:
        names = ("is_encoder_decoder", "type_vocab_size")
        sign = next((f"{name!r} is of one" for name in names if config.values.get(name)), "")
    if sign:
        raise config.error(
            f"{sign} that reads its whole input at once, so it may keep no context; if it writes"
            " token by token, call it by a type with its layers, as 'model_type': 'llama'"
        )
    if config.values.get("use_cache") is not True:
        raise config.error(
            f"whether a model of type {config.type!r} keeps its context is not known; add"
            " 'use_cache': true if it writes token by token"
        )


# fields that only some kinds of layers read, by how their names begin
READ_BY = (
    (("mamba_", "ssm_", "state_size", "linear_", "conv_kernel"), (orders.LINEAR,)),
    (("index_", "indexer_"), (orders.INDEXED, orders.SPARSE)),
    (("conv_L_cache",), (orders.CONV,)),
)


def refuse_unused(config: ConfigurationFields, kinds: Collection[str]) -> None:
    """Raise `UsageError` at a field of states or indexes that none of a model's `kinds` reads.

    Only where the type of model is not known: it may keep both in one layer, as falcon_h1 does.
    """
    if config.type in orders.ORDERS:
        return
    for beginnings, readers in READ_BY:
        for name, value in config.values.items():
            if value and name.startswith(beginnings) and not {*readers} & {*kinds}:
                raise config.error(
                    f"{name!r} is of a kind of layer that the file does not list"
                    f" ({', '.join(readers)}), so the bytes could be wrong"
                )
