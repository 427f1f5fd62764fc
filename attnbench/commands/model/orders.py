"""The order of a model's layers: as its configuration lists it, or as its type of model has it."""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from attnbench.commands.model.configuration import ConfigurationFields

FULL = "full_attention"
SLIDING = "sliding_attention"
CHUNKED = "chunked_attention"
LINEAR = "linear_attention"
CONV = "conv"
INDEXED = "indexed_attention"
SPARSE = "compressed_sparse_attention"
HEAVY = "heavily_compressed_attention"
# layers without attention
MOE = "moe"
MLP = "mlp"
OLDER = MappingProxyType({"attention": FULL, "mamba": LINEAR, "deepseek_sparse_attention": INDEXED})
RATIOS = MappingProxyType({0: SLIDING, 4: SPARSE, 128: HEAVY})  # tokens to an entry

Order = Callable[[ConfigurationFields], list[str]]


def kinds_of(config: ConfigurationFields, known: Collection[str]) -> list[str]:
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


def _windows(config: ConfigurationFields) -> list[str]:
    """The same in all layers, or windows from some layer on if the file says so."""
    usual = not config.type.startswith("qwen")
    asked = config.values.get("use_sliding_window", usual)
    if not isinstance(asked, bool | None):
        raise config.error(f"'use_sliding_window' is {asked!r}; write true or false")
    used = config.has("sliding_window") and asked
    later = used and config.type in ("qwen2", "qwen3")
    first = config.size("max_window_layers", least=0) if later else 0
    return [SLIDING if used and i >= first else FULL for i in range(config.layers)]


def _last(last: str, others: str, every: int, name: str = "") -> Order:
    """The last of every `every` layers is of another kind; the field `name` overrides `every`."""

    def order(config: ConfigurationFields) -> list[str]:
        period = config.size(name, usual=every)
        return [others if (i + 1) % period else last for i in range(config.layers)]

    return order


def _chosen(name: str, others: str, first: int = 0) -> Order:
    """Full attention in the layers that a field lists, numbered from `first`."""

    def order(config: ConfigurationFields) -> list[str]:
        chosen = config.listed(name)
        numbers = range(first, config.layers + first)
        if not {*chosen} <= {*numbers}:
            raise config.error(f"{name!r} is {chosen}; there are {config.layers} layers")
        return [FULL if i in chosen else others for i in numbers]

    return order


def _marked(name: str, kinds: Mapping[Any, str], without: Order | None = None) -> Order:
    """Kinds by a mark for each layer; the order `without` that field, if there is one.

    Marks of layers that predict further tokens are left out.
    """

    def order(config: ConfigurationFields) -> list[str]:
        if without and not config.values.get(name):
            return without(config)
        marks = config.listed(name)[: config.layers if config.has("num_hidden_layers") else None]
        return [kinds.get(mark, mark) for mark in marks]

    return order


def _jamba(config: ConfigurationFields) -> list[str]:
    every = config.size("attn_layer_period")
    first = config.size("attn_layer_offset", least=0)
    return [FULL if i % every == first else LINEAR for i in range(config.layers)]


HYBRID = MappingProxyType({"M": LINEAR, "*": FULL, "E": MOE, "-": MLP})
CHUNKS = _last(FULL, CHUNKED, 4, "no_rope_layer_interval")  # where positions are rotary
# how the types of models whose caches were compared order layers that their files do not list
BY_TYPE: Mapping[str, Order] = MappingProxyType(
    {
        "apertus arcee bitnet cohere deepseek_v2 deepseek_v3 ernie4_5 ernie4_5_moe flex_olmo"
        " gemma glm4 glm4_moe glm4_moe_lite granite granitemoe granitemoeshared helium"
        " hunyuan_v1_dense hunyuan_v1_moe internlm3 kimi_k2 llama minimax_m2 ministral3"
        " mistral mixtral nemotron olmo olmo2 olmoe phi3 phimoe qwen2 qwen3 qwen3_moe"
        " seed_oss smollm3 stablelm starcoder2": _windows,
        "cohere2": _last(FULL, SLIDING, 4, "sliding_window_pattern"),
        "deepseek_v32 glm_moe_dsa": _last(INDEXED, INDEXED, 1),
        "deepseek_v4": _marked("compress_ratios", RATIOS),
        "falcon_mamba mamba mamba2": _last(LINEAR, LINEAR, 1),
        "gemma2 gpt_oss": _last(FULL, SLIDING, 2),
        "gemma3_text": _last(FULL, SLIDING, 6, "sliding_window_pattern"),
        "gemma3n_text": _last(FULL, SLIDING, 5),
        "gemma4_text granitemoehybrid": lambda config: config.listed("layer_types"),
        "jamba": _jamba,
        "kimi_linear": _chosen("linear_full_attn_layers", LINEAR, first=1),
        "lfm2": _chosen("full_attn_idxs", CONV),
        "llama4_text": _marked("no_rope_layers", {1: CHUNKED, 0: FULL}, CHUNKS),
        "minimax minimax_m1 minimax_text_01": _marked(
            "attn_type_list", {0: LINEAR, 1: FULL}, _last(LINEAR, FULL, 2)
        ),
        "nemotron_h": _marked("hybrid_override_pattern", HYBRID),
        "olmo3": _last(FULL, SLIDING, 4),
        "olmo_hybrid qwen3_5_moe_text qwen3_5_text qwen3_next": _last(
            FULL, LINEAR, 4, "full_attention_interval"
        ),
    }
)
ORDERS = MappingProxyType(
    {name: order for names, order in BY_TYPE.items() for name in names.split()}
)
