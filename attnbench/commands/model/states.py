"""What recurrent layers and convolutions keep of the context, whatever its length."""

from math import prod

from attnbench.commands.model.configuration import ConfigurationFields
from attnbench.commands.model.context import CachePart

FLOAT32 = 4  # bytes of the numbers of recurrent states, whatever the cache's type
MAMBA_1 = ("falcon_mamba", "jamba", "mamba", "zamba")  # which have no groups
# whose heads have a width of their own unless the file says so; others share the model's
OWN_WIDTH = frozenset(
    (
        *("afmoe", "axk2", "bailing_hybrid", "chatglm", "cohere2_moe", "cosmos3_edge_text", "cwm"),
        *("deepseek_v32", "deepseek_v4", "diffusion_gemma_text", "dory", "dots3_note_text"),
        *("ernie4_5", "flint", "gemma", "gemma2", "gemma3_text", "gemma3n_text", "gemma4_text"),
        *("gemma4_unified_text", "glm", "glm4", "glm4_moe_lite", "glm_moe_dsa", "gpt_oss"),
        *("helium", "hy_v3", "hy_v4", "hy_v4_vl_text", "internlm3", "iquestcoder", "jetmoe"),
        *("kolibri1", "laguna", "lara_mini", "lfm3", "llama4_text", "longcat_flash", "mellum"),
        *("mimo_v2", "mimo_v2_flash", "minimax_m2", "minimax_m3_vl", "minimax_m3_vl_text"),
        *("ministral3", "molmo2_text", "muse_glimmer_text", "muse_spark_text", "nemotron_h"),
        *("paddleocr_vl_text",),
        *("qwen2_5_omni_talker", "qwen3", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"),
        *("qwen3_omni_moe_talker_code_predictor", "qwen3_vl_text", "sarvam_moe", "seed_oss"),
        *("solar_open", "step3p5", "vaultgemma", "zaya"),
    )
)

LayerCache = tuple[str, tuple[CachePart, ...]]  # in words, and its parts


def head_width(config: ConfigurationFields, heads: int) -> int:
    """What the file says, or its share of the model's width."""
    absent = "head_dim" not in config.values
    if config.has("head_dim") or (absent and config.type in OWN_WIDTH):
        return config.size("head_dim")
    width = config.size("hidden_size", least=heads)
    if width % heads:
        raise config.error(f"'hidden_size' is {width}, which the {heads} heads do not divide")
    return width // heads


def recurrence(config: ConfigurationFields, kind: str, index: int) -> LayerCache:
    """A recurrent state, and the last tokens of a short convolution."""
    shape, channels = state_shape(config)
    words = f"linear, state {' × '.join(f'{size:,}' for size in shape)}"
    if not channels:
        return words, (CachePart(prod(shape), max_entries=1),)
    state = CachePart(prod(shape), max_entries=1, item_bytes=FLOAT32)
    names = ("linear_conv_kernel_dim", "linear_short_conv_kernel_size")
    more, inputs = _last_tokens(channels, config.size(*names, "mamba_d_conv", "conv_kernel"))
    return f"{words}, {more}", (state, *inputs)


def state_shape(config: ConfigurationFields) -> tuple[tuple[int, ...], int]:
    """The shape of a state, and the channels of the convolution before it, 0 without one."""
    if config.has("linear_num_value_heads"):  # gated delta rule
        heads = config.size("linear_num_value_heads")
        values = config.size("linear_value_head_dim")
        keys = config.size("linear_key_head_dim")
        channels = 2 * config.size("linear_num_key_heads") * keys + heads * values
        return (heads, keys, values), channels
    if config.has("linear_num_heads"):  # Kimi's delta rule
        heads = config.size("linear_num_heads")
        width = config.size("linear_head_dim")
        return (heads, width, width), 3 * heads * width
    if config.type.startswith("minimax"):  # lightning attention
        heads = config.size("num_attention_heads")
        return (heads, *[head_width(config, heads)] * 2), 0
    state = config.size("mamba_d_state", "ssm_state_size", "state_size")
    inner = _inner(config)
    if config.type in MAMBA_1:
        return (inner, state), inner
    groups = config.size("mamba_n_groups", "n_groups")
    return (inner, state), inner + 2 * groups * state


def _inner(config: ConfigurationFields) -> int:
    """The channels of a Mamba layer's state."""
    if config.has("mamba_d_ssm"):
        return config.size("mamba_d_ssm")
    if config.has("mamba_num_heads"):
        return config.size("mamba_num_heads") * config.size("mamba_head_dim")
    if config.type in ("falcon_mamba", "mamba") and config.has("intermediate_size"):
        return config.size("intermediate_size")
    return config.size("mamba_expand", "expand") * config.size("hidden_size")


def convolution(config: ConfigurationFields, kind: str, index: int) -> LayerCache:
    """The last inputs of a layer that is a convolution alone."""
    return _last_tokens(config.size("hidden_size"), config.size("conv_L_cache"))


def compressed_queries(config: ConfigurationFields, heads: int, width: int) -> LayerCache:
    """What attention keeps beside its keys whose queries and keys pass two convolutions.

    Their last inputs, of both kernels, and the half of the last token's values that the next one
    reads: for each head of keys, half its width.
    """
    channels = (config.size("num_attention_heads") + heads) * width
    kernels = config.size("cca_time0") + config.size("cca_time1")
    delayed = heads * width // 2
    words = f"convolutions {config.size('cca_time0')} and {config.size('cca_time1')}"
    return f"{words}, delayed {delayed:,}", (
        CachePart(channels, max_entries=kernels - 2),
        CachePart(delayed, max_entries=1),
    )


def _last_tokens(channels: int, width: int) -> LayerCache:
    """The last inputs of a convolution."""
    return f"convolution {width}", (CachePart(channels, max_entries=width - 1),)
