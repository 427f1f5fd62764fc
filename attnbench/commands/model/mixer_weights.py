"""The weights of what mixes the tokens of a layer: attention, recurrences, convolutions."""

from collections.abc import Iterator
from math import ceil

from attnbench.commands.model import orders
from attnbench.commands.model.configuration import ConfigurationFields
from attnbench.commands.model.configured_layers import head_counts
from attnbench.commands.model.context import Layer
from attnbench.commands.model.families import ALL_HEADS, ModelFamily, is_set
from attnbench.commands.model.mechanisms import GATED, SINKS
from attnbench.commands.model.states import MAMBA_1, state_shape
from attnbench.commands.model.weights import ATTENTION, STATES, Weights

# types whose sliding layers alone have sinks
WINDOW_SINKS = ("mimo_v2", "mimo_v2_flash")

# types whose index is of blocks of keys
BLOCK_INDEX = ("minimax_m3_vl", "minimax_m3_vl_text")


def mixer(
    config: ConfigurationFields, family: ModelFamily, kind: str, layer: Layer
) -> Iterator[Weights]:
    """What mixes the tokens of a layer."""
    if kind in (orders.MOE, orders.MLP):
        return
    if kind == orders.LINEAR:
        yield from _state(config)
    elif kind == orders.CONV:
        yield from _convolution(config)
    elif config.type == "deepseek_v4":
        yield from _pooled(config, kind, layer)
    elif config.has("kv_lora_rank"):
        yield from _latent(config, family)
        if kind == orders.INDEXED and len(layer.parts) > 1:
            yield from _index(config)
    elif kind in (orders.FULL, orders.SLIDING, orders.CHUNKED):
        yield from _attention(config, family, kind, shares=not layer.parts)
    elif kind == orders.BOTH and config.type == "falcon_h1":
        yield from _attention(config, family, kind, shares=False)
        yield from _mamba_2(config)
    elif kind == orders.INDEXED and config.type in BLOCK_INDEX:
        yield from _attention(config, family, kind, shares=False)
        yield _block_index(config)
    else:
        raise config.error(f"the weights of a layer {kind!r} of this type are not known here")


def _attention(
    config: ConfigurationFields, family: ModelFamily, kind: str, *, shares: bool
) -> Iterator[Weights]:
    """Maps to queries, keys and values and back; keys and values may be those of another layer."""
    model = config.size("hidden_size")
    heads = config.size("num_attention_heads")
    kv_heads, width = head_counts(config, kind)
    values = config.size("v_head_dim", default=width)
    inputs = model + is_set(config, family.input_bias)
    queries = heads * width * (2 if config.type in GATED else 1)
    same = config.values.get("attention_k_eq_v") is True and kind != orders.SLIDING
    kept_width = 0 if shares else width if same else width + values
    yield Weights(ATTENTION, queries * inputs + heads * values * model, heads)
    yield Weights(ATTENTION, kv_heads * kept_width * inputs, kv_heads, readers=heads)
    if is_set(config, family.output_bias):
        yield Weights(ATTENTION, model)
    if family.gated:
        yield Weights(ATTENTION, heads * width * model, heads)
    if config.type == "laguna":
        yield _laguna_gate(config, heads, width)
    if config.type in SINKS or (config.type in WINDOW_SINKS and kind == orders.SLIDING):
        yield Weights(ATTENTION, heads, heads)
    if config.type == "bitnet":
        yield Weights(ATTENTION, model)
    if not family.query_norm or not is_set(config, family.has_query_norm):
        return
    if family.query_norm == ALL_HEADS:
        yield Weights(ATTENTION, heads * width, heads)
        yield Weights(ATTENTION, kv_heads * width * (not shares), kv_heads, readers=heads)
    else:
        yield Weights(ATTENTION, family.norm_size * width * (1 if shares else 2))


def _laguna_gate(config: ConfigurationFields, heads: int, width: int) -> Weights:
    """The map to a gate, which is of each head or of each number of a head."""
    gating = config.values.get("gating", True)
    if gating not in (True, "per-head", "per-element"):
        raise config.error(f"'gating' is {gating!r}; write 'per-head' or 'per-element'")
    numbers = width if gating == "per-element" else 1
    return Weights(ATTENTION, heads * numbers * config.size("hidden_size"), heads)


def _latent(config: ConfigurationFields, family: ModelFamily) -> Iterator[Weights]:
    """Attention by latents: maps down are on every card, maps up are divided by heads."""
    model = config.size("hidden_size")
    heads = config.size("num_attention_heads")
    rank = config.size("kv_lora_rank")
    rope = config.size("qk_rope_head_dim", least=0)
    inner = config.size("qk_nope_head_dim")
    values = config.size("v_head_dim")
    bias = is_set(config, family.input_bias)
    config.require("q_lora_rank")
    if config.has("q_lora_rank"):
        query_rank = config.size("q_lora_rank")
        yield Weights(ATTENTION, query_rank * (model + bias + 1))
        yield Weights(ATTENTION, query_rank * heads * (inner + rope), heads)
    else:
        yield Weights(ATTENTION, model * heads * (inner + rope), heads)
    yield Weights(ATTENTION, (rank + rope) * (model + bias) + rank + model * bias)
    yield Weights(ATTENTION, heads * (rank * (inner + values) + values * model), heads)


def _index(config: ConfigurationFields) -> Iterator[Weights]:
    """An indexer, which each card has whole."""
    model = config.size("hidden_size")
    heads = config.size("index_n_heads")
    width = config.size("index_head_dim")
    queries = config.size("q_lora_rank") * heads * width
    yield Weights(ATTENTION, queries + model * (width + heads) + 2 * width)


def _block_index(config: ConfigurationFields) -> Weights:
    """An indexer with norms of its queries and keys, which each card has whole."""
    width = config.size("index_head_dim")
    heads = config.size("index_n_heads") + 1
    return Weights(ATTENTION, config.size("hidden_size") * heads * width + 2 * width)


def _convolution(config: ConfigurationFields) -> Iterator[Weights]:
    """Gates before and after a short convolution of each channel."""
    model = config.size("hidden_size")
    bias = is_set(config, ("conv_bias", False))
    channels = model * (3 * (model + bias) + config.size("conv_L_cache") + bias)
    yield Weights(STATES, channels + model * model, model, rows=True)
    yield Weights(STATES, model * bias)


def _state(config: ConfigurationFields) -> Iterator[Weights]:
    """A recurrence by what its fields say of it, as `state_shape` reads them."""
    if config.has("linear_num_value_heads"):
        yield from _gated_delta(config)
    elif config.has("linear_num_heads"):
        yield from _kimi_delta(config)
    elif config.type.startswith("minimax"):
        yield from _lightning(config)
    elif config.type in MAMBA_1:
        yield from _mamba_1(config)
    else:
        yield from _mamba_2(config)


def _gated_delta(config: ConfigurationFields) -> Iterator[Weights]:
    model = config.size("hidden_size")
    (heads, key_width, value_width), _ = state_shape(config)
    key_heads = config.size("linear_num_key_heads")
    window = config.size("linear_conv_kernel_dim")
    keys = 2 * key_heads * key_width * (model + window)
    yield Weights(STATES, keys, key_heads, readers=heads)
    of_head = value_width * (3 * model + window) + 2 * model + 2
    yield Weights(STATES, heads * of_head, heads)
    yield Weights(STATES, value_width)


def _kimi_delta(config: ConfigurationFields) -> Iterator[Weights]:
    model = config.size("hidden_size")
    (heads, width, _), _ = state_shape(config)
    window = config.size("linear_conv_kernel_dim", "linear_short_conv_kernel_size")
    down = 2 * model * width
    of_head = width * (4 * model + 3 * window + 1 + 2 * width) + model + 1
    yield Weights(STATES, heads * of_head, heads)
    yield Weights(STATES, down + width)


def _lightning(config: ConfigurationFields) -> Iterator[Weights]:
    model = config.size("hidden_size")
    (heads, width, _), _ = state_shape(config)
    yield Weights(STATES, heads * width * (5 * model + 1), heads)


def _mamba_1(config: ConfigurationFields) -> Iterator[Weights]:
    """Divided by channels, but for what maps a channel to its steps and back."""
    model = config.size("hidden_size")
    (inner, state), _ = state_shape(config)
    name = "mamba_dt_rank" if config.type == "jamba" else "time_step_rank"
    derived = config.values.get(name) in (None, "auto")
    rank = ceil(model / 16) if derived else config.size(name)
    window = config.size("mamba_d_conv", "conv_kernel")
    jamba = config.type == "jamba"
    window += is_set(config, ("mamba_conv_bias" if jamba else "use_conv_bias", True))
    bias = is_set(config, ("mamba_proj_bias" if jamba else "use_bias", False))
    of_channel = 2 * (model + bias) + model + window + (2 * rank + 2 * state) + 1 + state + 1
    yield Weights(STATES, inner * of_channel, inner, rows=True)
    yield Weights(STATES, model * bias + (rank + 2 * state) * jamba)


def _mamba_2(config: ConfigurationFields) -> Iterator[Weights]:
    """Divided by heads and by groups of heads."""
    model = config.size("hidden_size")
    (inner, state), _ = state_shape(config)
    heads = config.size("mamba_num_heads", "mamba_n_heads", "num_heads")
    groups = config.size("mamba_n_groups", "n_groups")
    window = config.size("mamba_d_conv", "conv_kernel")
    named = config.type in ("bamba", "falcon_h1", "granitemoehybrid")
    window += is_set(config, ("mamba_conv_bias" if named else "use_conv_bias", True))
    bias = is_set(config, ("mamba_proj_bias" if named else "use_bias", False))
    normed, back = True, bias
    if config.type == "falcon_h1":
        normed = is_set(config, ("mamba_rms_norm", False))
        back = is_set(config, ("projectors_bias", False))
    inputs = model + bias
    channels = inner * (2 * inputs + window + normed + model)
    yield Weights(STATES, channels + heads * (inputs + 3), heads)
    yield Weights(STATES, 2 * groups * state * (inputs + window), groups, readers=heads)
    yield Weights(STATES, model * back)


def _pooled(config: ConfigurationFields, kind: str, layer: Layer) -> Iterator[Weights]:
    """One vector as key and value, and gated pools of them; sparse ones have an index."""
    model = config.size("hidden_size")
    heads = config.size("num_attention_heads")
    _, width = head_counts(config, kind)
    rank = config.size("q_lora_rank")
    groups = config.size("o_groups")
    narrow = groups * config.size("o_lora_rank")
    yield Weights(ATTENTION, rank * heads * width + heads, heads)
    yield Weights(ATTENTION, narrow * (heads * width // groups + model), groups, readers=heads)
    yield Weights(ATTENTION, rank * (model + 1) + width * (model + 1))
    if kind not in (orders.SPARSE, orders.HEAVY):
        return
    ratio = layer.parts[1].stride
    yield Weights(ATTENTION, _pool(model, width, ratio, 1 + (kind == orders.SPARSE)))
    if kind == orders.SPARSE:
        index_heads = config.size("index_n_heads")
        index_width = config.size("index_head_dim")
        yield Weights(ATTENTION, _pool(model, index_width, ratio, 2))
        yield Weights(ATTENTION, index_heads * (rank * index_width + model))


def _pool(model: int, width: int, ratio: int, overlap: int) -> int:
    """The numbers of a gated pool: its values, gates, positions and norm."""
    return overlap * width * (2 * model + ratio) + width
