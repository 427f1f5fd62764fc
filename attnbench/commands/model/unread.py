"""Fields of a configuration that may change what a layer keeps and that nothing here reads."""

import re
from collections.abc import Collection

from attnbench.commands.model import orders
from attnbench.commands.model.configuration import ConfigurationFields

# what the names of fields hold that say how much of the context a layer keeps
SIZES = re.compile(
    "kv|head|group|mamba|ssm|state|conv|index|sparse|window|share|cla(?!ss|mp|use)|latent|rank"
    "|compress|mixer|pattern|channels|kpool|layer_ids|cca|chunk|cross_attention|encoder_layers"
    "|recurrent|loop|multi_query"
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
        *("hybrid_override_pattern", "linear_attn_config", "sparse_attention_config"),
    )
)
# of experts, biases, positions, kernels, training and tokens, none of which a cache holds
FREE = re.compile(
    "experts?(_|$)|expert_|(^|_)(bias|dropout|dtype|act|eps|theta|scaling|std|init|range)($|_)"
    "|(image|video|audio|token|pad|bos|eos)_(token_)?index|rope|_loss"
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
        *("moe_layer_start_index", "moe_layer_end_index"),
    )
)


def refuse_unread(config: ConfigurationFields) -> None:
    """Raise `UsageError` at the first field that may change sizes and is not read.

    Fields that are empty, zero or false change nothing.
    """
    for name, value in config.values.items():
        if not value or name in READ or name in FREE_NAMES or name.endswith("vision_config"):
            continue
        other = isinstance(value, dict) and not name.endswith("_config") and READ & value.keys()
        if other or (SIZES.search(name) and not FREE.search(name)):
            raise config.error(f"{name!r} is not read here, so the bytes could be wrong")


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
