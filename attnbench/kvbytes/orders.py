"""The order of a model's layers: as its configuration lists it, or as its type of model has it."""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from attnbench.kvbytes.configuration import Fields

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
LINEAR, CONV, INDEXED = "linear_attention", "conv", "indexed_attention"
SPARSE, HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"
MOE, MLP = "moe", "mlp"  # layers without attention
OLDER = MappingProxyType({"attention": FULL, "mamba": LINEAR, "deepseek_sparse_attention": INDEXED})
RATIOS = MappingProxyType({0: SLIDING, 4: SPARSE, 128: HEAVY})  # tokens to an entry

Order = Callable[[Fields], list[str]]


def kinds_of(config: Fields, known: Collection[str]) -> list[str]:
    """The kind of each layer, of those `known`. Raises `UsageError`."""
    name = next(filter(config.has, ("layer_types", "layers_block_type")), None)
    if name is None and config.type not in ORDERS:
        raise config.error(
            f"how model type {config.type!r} orders its layers is not known; add 'layer_types', a"
            f" list of {', '.join(known)}"
        )
    kinds = ORDERS[config.type](config) if name is None else config.listed(name)
    kinds = [OLDER.get(kind, kind) for kind in kinds]
    if config.has("num_hidden_layers") and len(kinds) != config.layers:
        raise config.error(
            f"{name or 'the order of layers'} names {len(kinds)} layers, and 'num_hidden_layers'"
            f" {config.layers}"
        )
    if unknown := [kind for kind in kinds if kind not in known]:
        raise config.error(f"unknown kind of layer {unknown[0]!r}; known are {', '.join(known)}")
    return kinds


def _windows(config: Fields) -> list[str]:
    """The same in all layers, or windows from some layer on if the file says so."""
    usual = not config.type.startswith("qwen")
    asked = config.values.get("use_sliding_window", usual)
    if not isinstance(asked, bool | None):
        raise config.error(f"'use_sliding_window' is {asked!r}; write true or false")
    used = config.has("sliding_window") and asked
    later = used and config.type in ("qwen2", "qwen3")
    first = config.size("max_window_layers", least=0) if later else 0
    return [SLIDING if used and i >= first else FULL for i in range(config.layers)]


def _last(config: Fields, last: str, others: str, every: int, name: str = "") -> list[str]:
    """The last of every `every` layers is of another kind; the field `name` overrides `every`."""
    every = config.size(name, usual=every)
    return [others if (i + 1) % every else last for i in range(config.layers)]


def _chosen(config: Fields, name: str, others: str = LINEAR, first: int = 0) -> list[str]:
    """Full attention in the layers that a field lists, numbered from `first`."""
    chosen = config.listed(name)
    if not set(chosen) <= set(range(first, config.layers + first)):
        raise config.error(f"{name!r} is {chosen}; there are {config.layers} layers")
    return [FULL if i + first in chosen else others for i in range(config.layers)]


def _marked(config: Fields, name: str, kinds: Mapping[Any, str]) -> list[str]:
    """Kinds by a mark for each layer, leaving out marks of layers that predict further tokens."""
    marks = config.listed(name)[: config.layers if config.has("num_hidden_layers") else None]
    if unknown := [mark for mark in marks if mark not in kinds]:
        known = ", ".join(map(str, kinds))
        raise config.error(f"unknown kind of layer {unknown[0]!r} in {name!r}; known are {known}")
    return [kinds[mark] for mark in marks]


def _minimax(config: Fields) -> list[str]:
    if config.has("attn_type_list"):
        return _marked(config, "attn_type_list", {0: LINEAR, 1: FULL})
    return _last(config, LINEAR, FULL, 2)


def _jamba(config: Fields) -> list[str]:
    every, first = config.size("attn_layer_period"), config.size("attn_layer_offset", least=0)
    return [FULL if i % every == first else LINEAR for i in range(config.layers)]


def _llama4(config: Fields) -> list[str]:
    """Chunks in the layers with rotary positions, which a list may mark by 1."""
    if config.values.get("no_rope_layers"):
        return _marked(config, "no_rope_layers", {1: CHUNKED, 0: FULL})
    return _last(config, FULL, CHUNKED, 4, "no_rope_layer_interval")


ALIKE = (
    "deepseek_v2 deepseek_v3 gemma glm4 glm4_moe glm4_moe_lite granite hunyuan_v1_moe kimi_k2 llama"
    " minimax_m2 mistral mixtral phi3 qwen2 qwen3 qwen3_moe smollm3 starcoder2"
)
DELTA = "olmo_hybrid qwen3_5_moe_text qwen3_5_text qwen3_next"
# how the types of models whose caches were compared order layers that their files do not list
ORDERS: Mapping[str, Order] = MappingProxyType(
    dict.fromkeys(ALIKE.split(), _windows)
    | dict.fromkeys(
        DELTA.split(), lambda config: _last(config, FULL, LINEAR, 4, "full_attention_interval")
    )
    | dict.fromkeys(
        ("gemma4_text", "granitemoehybrid"), lambda config: config.listed("layer_types")
    )
    | dict.fromkeys(("falcon_mamba", "mamba", "mamba2"), lambda config: [LINEAR] * config.layers)
    | dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), lambda config: [INDEXED] * config.layers)
    | dict.fromkeys(("minimax", "minimax_m1", "minimax_text_01"), _minimax)
    | dict.fromkeys(("gemma2", "gpt_oss"), lambda config: _last(config, FULL, SLIDING, 2))
    | {
        "cohere2": lambda config: _last(config, FULL, SLIDING, 4, "sliding_window_pattern"),
        "deepseek_v4": lambda config: _marked(config, "compress_ratios", RATIOS),
        "gemma3_text": lambda config: _last(config, FULL, SLIDING, 6, "sliding_window_pattern"),
        "gemma3n_text": lambda config: _last(config, FULL, SLIDING, 5),
        "jamba": _jamba,
        "kimi_linear": lambda config: _chosen(config, "linear_full_attn_layers", first=1),
        "lfm2": lambda config: _chosen(config, "full_attn_idxs", CONV),
        "llama4_text": _llama4,
        "nemotron_h": lambda config: _marked(
            config, "hybrid_override_pattern", {"M": LINEAR, "*": FULL, "E": MOE, "-": MLP}
        ),
        "olmo3": lambda config: _last(config, FULL, SLIDING, 4),
    }
)
