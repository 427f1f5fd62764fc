"""The layers of a model's configuration, and what each kind keeps of the context."""

from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from attnbench.commands.model import orders
from attnbench.commands.model.configuration import QUERY_HEADS, ConfigurationFields, fields
from attnbench.commands.model.context import CachePart, Layer
from attnbench.commands.model.orders import FULL, ORDERS, RATIOS, SLIDING, SPARSE, kinds_of
from attnbench.commands.model.unread import refuse_unread, refuse_unused

FLOAT32 = 4  # bytes of the numbers of recurrent states, whatever the cache's type

LayerCache = tuple[str, tuple[CachePart, ...]]  # in words, and its parts


class Model(NamedTuple):
    """The layers of a configuration; `checked` if its model type was compared with transformers.

    `dtype` is what the file says, or nothing.
    """

    type: str
    dtype: str
    layers: tuple[Layer, ...]
    checked: bool


def model(path: Path) -> Model:
    """The layers of a file such as `config.json`. Raises `UsageError`."""
    config = fields(path)
    dtypes = (config.values.get(name) for name in ("dtype", "torch_dtype"))
    dtype = next((name for name in dtypes if isinstance(name, str)), "").removeprefix("torch.")
    return Model(
        config.type, dtype, tuple(layer for _, layer in layers(config)), config.type in ORDERS
    )


def layers(config: ConfigurationFields) -> Iterator[tuple[str, Layer]]:
    """Each layer with its name in `KINDS`, in order. Raises `UsageError`."""
    for kind, layer, _ in layers_with_fields(config):
        yield kind, layer


def layers_with_fields(
    config: ConfigurationFields,
) -> Iterator[tuple[str, Layer, ConfigurationFields]]:
    """Each layer with its name in `KINDS` and its own fields, in order. Raises `UsageError`."""
    refuse_unread(config)
    kinds = kinds_of(config, KINDS)
    refuse_unused(config, kinds)
    for index, kind in enumerate(kinds):
        own = config.of_layer(index)
        refuse_unread(own)
        yield kind, _layer(own, kind, index), own


# Of the types in `ORDERS`: whose heads of keys are as many as those of queries unless the file says
# otherwise; whose heads have a width of their own unless it does. Others are never guessed.
ALL_HEADS = ("cohere2", "granitemoehybrid", "llama", "olmo3", "olmo_hybrid", "phi3")
OWN_WIDTH = (
    *("deepseek_v4", "gemma", "gemma2", "gemma3_text", "gemma3n_text", "gemma4_text", "glm4"),
    *("ernie4_5", "helium", "hunyuan_v1_dense", "internlm3", "ministral3", "seed_oss"),
    *("gpt_oss", "llama4_text", "minimax_m2", "nemotron_h", "qwen3", "qwen3_5_moe_text"),
    *("qwen3_5_text", "qwen3_next"),
)
KEYS_ARE_VALUES = ("deepseek_v4",)  # in each of its layers
WITHOUT_QUERIES = (orders.LINEAR, orders.CONV)


def _layer(config: ConfigurationFields, kind: str, index: int) -> Layer:
    words, parts = KINDS[kind](config, kind, index)
    shared = config.size("num_kv_shared_layers", least=0, usual=0)
    if shared and index >= config.layers - shared > 0:
        words = f"{words}, shared with an earlier layer"
        parts = ()
    full: int | None = 0 if KINDS[kind] is _nothing else None
    if full is None and config.has("num_attention_heads", "kv_lora_rank"):
        full = _tokens(config, kind)[1]
    if parts and config.has(QUERY_HEADS) and kind not in WITHOUT_QUERIES:
        words = f"{words}, {config.size('num_attention_heads')} heads of queries"
    return Layer(kind=words, parts=parts, full=full)


def _tokens(config: ConfigurationFields, kind: str = FULL) -> tuple[str, int]:
    """What attention keeps of a token, in words and in numbers."""
    if config.has("kv_lora_rank"):
        rank = config.size("kv_lora_rank")
        rope = config.size("qk_rope_head_dim", least=0)
        return f"latent {rank:,} + {rope:,}", rank + rope
    heads, width = head_counts(config, kind)
    tensors = 1 if config.type in KEYS_ARE_VALUES else 2
    return f"{heads} × {width:,}", tensors * heads * width


def head_counts(config: ConfigurationFields, kind: str) -> tuple[int, int]:
    """The heads of keys and values of attention, and their width. Raises `UsageError`."""
    queries = config.size("num_attention_heads")
    guessed = config.type in ALL_HEADS or config.type not in ORDERS
    heads = config.size("num_key_value_heads", usual=queries if guessed else None)
    if queries % heads:
        raise config.error(
            f"'num_key_value_heads' is {heads}, which does not divide the {queries} heads"
        )
    width = _head_width(config, queries)
    if config.size("v_head_dim", usual=width) != width:
        raise config.error("values of another width than keys, 'v_head_dim', are not read here")
    if kind != SLIDING and config.has("global_head_dim"):
        width = config.size("global_head_dim")
        if config.values.get("attention_k_eq_v") and config.has("num_global_key_value_heads"):
            heads = config.size("num_global_key_value_heads")
    return heads, width


def _head_width(config: ConfigurationFields, heads: int) -> int:
    """What the file says, or its share of the model's width."""
    if config.has("head_dim") or config.type in OWN_WIDTH:
        return config.size("head_dim")
    width = config.size("hidden_size", least=heads)
    if width % heads:
        raise config.error(f"'hidden_size' is {width}, which the {heads} heads do not divide")
    return width // heads


def _nothing(config: ConfigurationFields, kind: str, index: int) -> LayerCache:
    return f"{kind}, without attention", ()


def _full(config: ConfigurationFields, kind: str, index: int) -> LayerCache:
    words, numbers = _tokens(config)
    return f"full, {words}", (CachePart(numbers),)


def _window(config: ConfigurationFields, kind: str, index: int) -> LayerCache:
    """A window or chunk without its last token, which is the query itself."""
    words, numbers = _tokens(config, kind)
    window = config.size("sliding_window" if kind == SLIDING else "attention_chunk_size", least=2)
    part = CachePart(numbers, max_entries=window - 1)
    return f"{kind.removesuffix('_attention')} {window:,}, {words}", (part,)


def _indexed(config: ConfigurationFields, kind: str, index: int) -> LayerCache:
    """The cache, and the keys of an indexer for each token."""
    words, numbers = _tokens(config)
    words = f"indexed, {words}"
    base = CachePart(numbers)
    if _reuses(config, index):
        return f"{words}, index of an earlier layer", (base,)
    width = config.size("index_head_dim")
    return f"{words}, index {width:,}", (base, CachePart(width))


def _reuses(config: ConfigurationFields, index: int) -> bool:
    """Whether a layer reuses the selection of an earlier one."""
    name = next(filter(config.has, ("indexer_types", "index_topk_pattern")), None)
    if name is not None:
        return config.listed(name)[index : index + 1] in (["shared"], ["S"])
    first = config.size("index_skip_topk_offset", usual=2)
    every = config.size("index_topk_freq", usual=1)
    return max(index - first + 1, 0) % every != 0


def _compressed(config: ConfigurationFields, kind: str, index: int) -> LayerCache:
    """A window, and gated pools of all tokens; sparse ones overlap and have an index."""
    words, width = _tokens(config)
    rates = config.values.get("compress_rates")
    ratio = next(ratio for ratio, name in RATIOS.items() if name == kind)
    ratio = ConfigurationFields(config.file, rates).size(kind) if isinstance(rates, dict) else ratio
    parts = [CachePart(width, max_entries=config.size("sliding_window") - 1)]
    overlaps = kind == SPARSE
    for pooled in [width, config.size("index_head_dim")] if overlaps else [width]:
        gated = 2 * pooled * (2 if overlaps else 1)
        waiting = CachePart(gated, stride=ratio, remainder_only=True)
        parts += [CachePart(pooled, stride=ratio), waiting]
        if overlaps:  # keys and gates of the last pool
            parts.append(CachePart(2 * pooled * ratio, stride=ratio, max_entries=1))
    name = kind.removesuffix("_attention").replace("_", " ")
    return f"{name} {ratio:,}, {words}", tuple(parts)


def _linear(config: ConfigurationFields, kind: str, index: int) -> LayerCache:
    """A recurrent state, and the last tokens of a short convolution."""
    shape, channels = state_shape(config)
    words = f"linear, state {' × '.join(f'{size:,}' for size in shape)}"
    if not channels:
        return words, (CachePart(prod(shape), max_entries=1),)
    state = CachePart(prod(shape), max_entries=1, item_bytes=FLOAT32)
    names = ("linear_conv_kernel_dim", "linear_short_conv_kernel_size")
    more, inputs = _last_tokens(channels, config.size(*names, "mamba_d_conv", "conv_kernel"))
    return f"{words}, {more}", (state, *inputs)


MAMBA_1 = ("falcon_mamba", "jamba", "mamba")  # which have no groups


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
        return (heads, *[_head_width(config, heads)] * 2), 0
    state = config.size("mamba_d_state", "ssm_state_size", "state_size")
    inner = _inner(config)
    if config.type in MAMBA_1:
        return (inner, state), inner
    groups = config.size("mamba_n_groups", "n_groups")
    return (inner, state), inner + 2 * groups * state


def _inner(config: ConfigurationFields) -> int:
    """The channels of a Mamba layer's state."""
    if config.has("mamba_num_heads"):
        return config.size("mamba_num_heads") * config.size("mamba_head_dim")
    if config.type in ("falcon_mamba", "mamba") and config.has("intermediate_size"):
        return config.size("intermediate_size")
    return config.size("mamba_expand", "expand") * config.size("hidden_size")


def _conv(config: ConfigurationFields, kind: str, index: int) -> LayerCache:
    return _last_tokens(config.size("hidden_size"), config.size("conv_L_cache"))


def _last_tokens(channels: int, width: int) -> LayerCache:
    """The last inputs of a convolution."""
    return f"convolution {width}", (CachePart(channels, max_entries=width - 1),)


KINDS: Mapping[str, Callable[[ConfigurationFields, str, int], LayerCache]] = MappingProxyType(
    {
        FULL: _full,
        SLIDING: _window,
        orders.CHUNKED: _window,
        orders.INDEXED: _indexed,
        SPARSE: _compressed,
        orders.HEAVY: _compressed,
        orders.LINEAR: _linear,
        orders.CONV: _conv,
        orders.MOE: _nothing,
        orders.MLP: _nothing,
    }
)
