"""The layers of a model's configuration, and what each kind keeps of the context."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from attnbench.commands.model import orders
from attnbench.commands.model.configuration import QUERY_HEADS, ConfigurationFields, fields
from attnbench.commands.model.context import CachePart, Layer
from attnbench.commands.model.orders import FULL, ORDERS, RATIOS, SLIDING, SPARSE, kinds_of
from attnbench.commands.model.states import (
    LayerCache,
    compressed_queries,
    convolution,
    head_width,
    recurrence,
)
from attnbench.commands.model.unread import (
    refuse_at_once,
    refuse_missing,
    refuse_unread,
    refuse_unused,
)


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
    return Model(
        config.type,
        config.dtype,
        tuple(layer for _, layer in layers(config)),
        config.type in ORDERS,
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
    refuse_missing(config)
    refuse_unused(config, kinds)
    refuse_at_once(config)
    for index, kind in enumerate(kinds):
        layer_fields = config.of_layer(index, kind)
        refuse_unread(layer_fields)
        yield kind, _layer(layer_fields, kind, index), layer_fields


# whose heads of keys are as many as of queries unless the file says otherwise; others are never
# guessed
ALL_HEADS = (
    *("cohere2", "granitemoehybrid", "llama", "olmo3", "olmo_hybrid", "phi3", "bloom", "codegen"),
    *("ctrl", "chatglm", "falcon", "gpt-sw3", "gpt2", "gpt_neox", "gpt_neox_japanese", "gptj"),
    *("opt", "biogpt", "persimmon", "mpt", "xglm"),
)
KEYS_ARE_VALUES = ("deepseek_v4",)  # in each of its layers
TWICE_IN_WINDOWS = (
    "mimo_v2",
    "mimo_v2_flash",
)  # as many heads of keys, unless the file says how many
WITHOUT_QUERIES = (orders.LINEAR, orders.CONV)
WINDOWS = (SLIDING, orders.BOTH_SLIDING)


def _layer(config: ConfigurationFields, kind: str, index: int) -> Layer:
    words, parts = KINDS[kind](config, kind, index)
    shared = config.size("num_kv_shared_layers", least=0, default=0)
    if shared and config.type.startswith("gemma") and shared >= config.layers:
        raise config.error(
            f"'num_kv_shared_layers' is {shared} of {config.layers} layers: they read the cache of"
            " another model, so give that one's file"
        )
    if shared and index >= config.layers - shared > 0:
        words = f"{words}, shared with an earlier layer"
        parts = ()
    full: int | None = 0 if KINDS[kind] is _no_cache else None
    if full is None and config.has("num_attention_heads", "kv_lora_rank"):
        full = _kept_of_token(config, kind)[1]
    if parts and config.has(QUERY_HEADS) and kind not in WITHOUT_QUERIES:
        words = f"{words}, {config.size('num_attention_heads')} heads of queries"
    return Layer(kind=words, parts=parts, full=full)


def _kept_of_token(config: ConfigurationFields, kind: str = FULL) -> tuple[str, int]:
    """What attention keeps of a token, in words and in numbers."""
    if config.has("kv_lora_rank"):
        rank = config.size("kv_lora_rank")
        rope = config.size("qk_rope_head_dim", least=0)
        return f"latent {rank:,} + {rope:,}", rank + rope
    heads, width = head_counts(config, kind)
    values = 0 if config.type in KEYS_ARE_VALUES else config.size("v_head_dim", default=width)
    words = (
        f"{heads} × {width:,}" if values in (0, width) else f"{heads} × ({width:,} + {values:,})"
    )
    return words, heads * (width + values)


def head_counts(config: ConfigurationFields, kind: str) -> tuple[int, int]:
    """The heads of keys and values of attention, and their width. Raises `UsageError`."""
    queries = config.size("num_attention_heads")
    # of a kind that is only named, and how many heads it has is another field
    grouped = config.values.get("attn_type") == "grouped_query_attention"
    guessed = config.type in ALL_HEADS and not grouped
    heads = config.size("num_key_value_heads", default=queries if guessed else None)
    if (
        kind == SLIDING
        and config.type in TWICE_IN_WINDOWS
        and not config.has("swa_num_key_value_heads")
    ):
        heads *= 2
    if queries % heads:
        raise config.error(
            f"'num_key_value_heads' is {heads}, which does not divide the {queries} heads"
        )
    width = head_width(config, queries)
    if kind != SLIDING and config.has("global_head_dim"):
        width = config.size("global_head_dim")
        if config.values.get("attention_k_eq_v") and config.has("num_global_key_value_heads"):
            heads = config.size("num_global_key_value_heads")
    return heads, width


def _no_cache(config: ConfigurationFields, kind: str, index: int) -> LayerCache:
    return f"{kind}, without attention", ()


def _full_cache(config: ConfigurationFields, kind: str, index: int) -> LayerCache:
    words, numbers = _kept_of_token(config)
    return f"full, {words}", (CachePart(numbers),)


def _window_cache(config: ConfigurationFields, kind: str, index: int) -> LayerCache:
    """A window or chunk without its last token, which is the query itself."""
    words, numbers = _kept_of_token(config, kind)
    window = config.size("sliding_window" if kind in WINDOWS else "attention_chunk_size", least=2)
    part = CachePart(numbers, max_entries=window - 1)
    return f"{kind.removesuffix('_attention')} {window:,}, {words}", (part,)


def _combined_cache(config: ConfigurationFields, kind: str, index: int) -> LayerCache:
    """Attention and a recurrence, or attention that keeps more than keys and values, in one."""
    attention = _full_cache if kind == orders.BOTH else _window_cache
    words, tokens = attention(config, SLIDING if kind == orders.BOTH_SLIDING else FULL, index)
    if config.has("cca_time0"):
        state_words, states = compressed_queries(config, *head_counts(config, kind))
    else:
        state_words, states = recurrence(config, kind, index)
    return f"{words}; {state_words}", tokens + states


def _indexed_cache(config: ConfigurationFields, kind: str, index: int) -> LayerCache:
    """The cache, and the keys of an indexer for each token."""
    words, numbers = _kept_of_token(config)
    words = f"indexed, {words}"
    base = CachePart(numbers)
    if _reuses_index(config, index):
        return f"{words}, index of an earlier layer", (base,)
    width = config.size("index_head_dim")
    return f"{words}, index {width:,}", (base, CachePart(width))


def _reuses_index(config: ConfigurationFields, index: int) -> bool:
    """Whether a layer reuses the selection of an earlier one."""
    name = next(filter(config.has, ("indexer_types", "index_topk_pattern")), None)
    if name is not None:
        return config.list_of(name)[index : index + 1] in (["shared"], ["S"])
    first_layer = config.size("index_skip_topk_offset", default=2)
    every = config.size("index_topk_freq", default=1)
    return max(index - first_layer + 1, 0) % every != 0


def _pooled_cache(config: ConfigurationFields, kind: str, index: int) -> LayerCache:
    """A window, and gated pools of all tokens; sparse ones overlap and have an index."""
    words, width = _kept_of_token(config)
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


KINDS: Mapping[str, Callable[[ConfigurationFields, str, int], LayerCache]] = MappingProxyType(
    {
        FULL: _full_cache,
        SLIDING: _window_cache,
        orders.CHUNKED: _window_cache,
        orders.INDEXED: _indexed_cache,
        SPARSE: _pooled_cache,
        orders.HEAVY: _pooled_cache,
        orders.LINEAR: recurrence,
        orders.CONV: convolution,
        orders.BOTH: _combined_cache,
        orders.BOTH_SLIDING: _combined_cache,
        orders.MOE: _no_cache,
        orders.MLP: _no_cache,
    }
)
