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
BOTH = "hybrid"  # attention and a recurrence in one layer
BOTH_SLIDING = "hybrid_sliding"
# layers without attention
MOE = "moe"
MLP = "mlp"
OLDER = MappingProxyType(
    {
        "attention": FULL,
        "mamba": LINEAR,
        "deepseek_sparse_attention": INDEXED,
        "minimax_m3_sparse": INDEXED,
    }
)
RATIOS = MappingProxyType({0: SLIDING, 4: SPARSE, 128: HEAVY})  # tokens to an entry

# fields that decide the order of a type's layers, whatever a list of them says
DECIDES = MappingProxyType(
    {
        "bailing_hybrid": ("layer_group_size",),
        "falcon_h1": ("mamba_d_ssm", "mamba_d_state"),
        "kimi_linear": ("linear_full_attn_layers",),
        "mimo_v2": ("hybrid_layer_pattern",),
        "mimo_v2_flash": ("hybrid_layer_pattern",),
        "minimax_m3_vl": ("sparse_attention_freq",),
        "minimax_m3_vl_text": ("sparse_attention_freq",),
    }
)

Order = Callable[[ConfigurationFields], list[str]]


def kinds_of(config: ConfigurationFields, known_kinds: Collection[str]) -> list[str]:
    """The kind of each layer, of those `known`. Raises `UsageError`."""
    name = next(filter(config.has, ("layer_types", "layers_block_type")), None)
    if name is None and not config.has("model_type"):
        raise config.error("'model_type' is missing; add it, or 'layer_types'")
    if name is None and config.type not in ORDERS:
        raise config.error(
            f"how model type {config.type!r} orders its layers is not known; add 'layer_types', a"
            f" list of {', '.join(known_kinds)}"
        )
    kinds = ORDERS[config.type](config) if name is None else config.list_of(name)
    kinds = [OLDER.get(kind, kind) for kind in kinds]
    if name and (field := next(filter(config.has, DECIDES.get(config.type, ())), None)):
        decided = ORDERS[config.type](config)
        if kinds != decided:
            names = ", ".join(dict.fromkeys(decided))
            raise config.error(
                f"{name!r} contradicts {field!r}, by which layers are {names}; remove {name!r}"
            )
    ahead = config.size("num_nextn_predict_layers", least=0, default=0)
    if config.has("num_hidden_layers") and len(kinds) == config.layers + ahead:
        kinds = kinds[: config.layers]  # without those that predict further tokens
    if config.has("num_hidden_layers") and len(kinds) != config.layers:
        raise config.error(
            f"{name or 'the order of layers'} names {len(kinds)} layers, and 'num_hidden_layers'"
            f" {config.layers}"
        )
    if unknown := [kind for kind in kinds if kind not in known_kinds]:
        raise config.error(
            f"unknown kind of layer {unknown[0]!r}; known are {', '.join(known_kinds)}"
        )
    return kinds


# types without windows unless the flag says so, and those whose first layers have none even then
FLAGGED = ("qwen2", "qwen3", "smollm3")  # how their names begin
WITHOUT_FLAG = ("qwen3_omni_moe_talker_code_predictor",)
START_LATE = (
    *("qwen2", "qwen3", "qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text"),
    *("qwen2_5_omni_talker", "qwen3_omni_moe_talker_code_predictor"),
)


def _has_windows(config: ConfigurationFields) -> bool:
    """Whether any layer has a window. Raises `UsageError` where a type has one of its own."""
    flagged = config.type.startswith(FLAGGED) and config.type not in WITHOUT_FLAG
    flag = config.values.get("use_sliding_window", not flagged)
    if not isinstance(flag, bool | None):
        raise config.error(f"'use_sliding_window' is {flag!r}; write true or false")
    if flagged and flag and "sliding_window" not in config.values:
        raise config.error(
            "'use_sliding_window' is true and 'sliding_window' is missing; add it, null where"
            " there is none"
        )
    return bool(flag) and config.has("sliding_window")


def _windows(config: ConfigurationFields) -> list[str]:
    """The same in all layers, or windows from some layer on if the file says so."""
    has_windows = _has_windows(config)
    starts_late = has_windows and config.type in START_LATE
    first = config.size("max_window_layers", least=0) if starts_late else 0
    return [SLIDING if has_windows and i >= first else FULL for i in range(config.layers)]


def _every_other_window(config: ConfigurationFields) -> list[str]:
    """Windows in every other layer, until full attention in all from some layer on."""
    if not _has_windows(config):
        return [FULL] * config.layers
    end = config.size("max_window_layers", least=0)
    return [FULL if i % 2 or i >= end else SLIDING for i in range(config.layers)]


def _windows_without_positions(config: ConfigurationFields) -> list[str]:
    """Windows where a layer has no rotary positions, which is every so many layers or as listed."""
    if not _has_windows(config):
        return [FULL] * config.layers
    if config.has("no_rope_layers"):
        marks = config.list_of("no_rope_layers")
        return [FULL if mark else SLIDING for mark in marks]
    return _last_of_period(SLIDING, FULL, 4, "no_rope_layer_interval")(config)


def _last_of_period(last: str, other_kind: str, every: int, name: str = "") -> Order:
    """The last of every `every` layers is of another kind; the field `name` overrides `every`."""

    def order(config: ConfigurationFields) -> list[str]:
        period = config.size(name, default=every)
        return [other_kind if (i + 1) % period else last for i in range(config.layers)]

    return order


def _full_where_listed(name: str, other_kind: str, first_number: int = 0) -> Order:
    """Full attention in the layers that a field lists, numbered from `first`."""

    def order(config: ConfigurationFields) -> list[str]:
        chosen = config.list_of(name)
        numbers = range(first_number, config.layers + first_number)
        if not {*chosen} <= {*numbers}:
            raise config.error(f"{name!r} is {chosen}; there are {config.layers} layers")
        return [FULL if i in chosen else other_kind for i in numbers]

    return order


def _by_marks(name: str, kinds: Mapping[Any, str], without: Order | None = None) -> Order:
    """Kinds by a mark for each layer; the order `without` that field, if there is one.

    Marks of layers that predict further tokens are left out.
    """

    def order(config: ConfigurationFields) -> list[str]:
        if without and not config.values.get(name):
            return without(config)
        marks = config.list_of(name)[: config.layers if config.has("num_hidden_layers") else None]
        return [kinds.get(mark, mark) for mark in marks]

    return order


def _as_listed(config: ConfigurationFields) -> list[str]:
    """As the file lists them, since the type has no order of its own."""
    return config.list_of("layer_types")


def _bamba(config: ConfigurationFields) -> list[str]:
    if not config.has("attn_layer_indices"):
        return [LINEAR] * config.layers
    return _full_where_listed("attn_layer_indices", LINEAR)(config)


def _jamba(config: ConfigurationFields) -> list[str]:
    every = config.size("attn_layer_period")
    first = config.size("attn_layer_offset", least=0)
    return [FULL if i % every == first else LINEAR for i in range(config.layers)]


HYBRID = MappingProxyType({"M": LINEAR, "*": FULL, "E": MOE, "-": MLP})
CHUNKS = _last_of_period(FULL, CHUNKED, 4, "no_rope_layer_interval")  # where positions are rotary
# how the types of models whose caches were compared order layers that their files do not list
BY_TYPE: Mapping[str, Order] = MappingProxyType(
    {
        "apertus apertus1p5_text arcee aria_text axk1 biogpt bitnet bloom chameleon chatglm"
        " codegen cohere cosmos3_edge_text ctrl dbrx deepseek deepseek_ocr2_text deepseek_v2"
        " deepseek_v3 diffllama emu3_text_model ernie4_5 ernie4_5_moe ernie4_5_vl_moe_text"
        " evolla exaone falcon flex_olmo gemma glm glm4 glm4_moe glm4_moe_lite glm4v_moe_text"
        " glm4v_text glm_image_text glm_ocr_text gpt-sw3 gpt2 gpt_bigcode gpt_neox"
        " gpt_neox_japanese gptj granite granite4_vision_text granite_docling_text granitemoe"
        " granitemoeshared helium hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl_text hy_v3"
        " hyperclovax idefics internlm3 iquestcoder jais2 jetmoe kimi_k2 llama longcat_flash"
        " minicpm3 minimax_m2 ministral3 mistral mistral4 mixtral molmo2_text moshi mpt nanochat"
        " nemotron olmo olmo2 olmoe opt paddleocr_vl_text persimmon phi phi3 phi4_multimodal"
        " phimoe qwen2 qwen2_5_omni_talker qwen2_5_omni_text qwen2_5_vl_text qwen2_vl_text qwen3"
        " qwen3_moe qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_text qwen3_vl_moe_text"
        " qwen3_vl_text sarvam_mla sarvam_moe seed_oss solar_open stablelm starcoder2"
        " voxtral_realtime_text xglm youtu": _windows,
        "qwen2_moe": _every_other_window,
        "smollm3": _windows_without_positions,
        "cohere2": _last_of_period(FULL, SLIDING, 4, "sliding_window_pattern"),
        "deepseek_v32 glm_moe_dsa": _last_of_period(INDEXED, INDEXED, 1),
        "deepseek_v4": _by_marks("compress_ratios", RATIOS),
        "falcon_mamba mamba mamba2": _last_of_period(LINEAR, LINEAR, 1),
        "gemma2 gpt_oss": _last_of_period(FULL, SLIDING, 2),
        "gemma3_text": _last_of_period(FULL, SLIDING, 6, "sliding_window_pattern"),
        "gemma3n_text": _last_of_period(FULL, SLIDING, 5),
        "afmoe axk2 cohere2_moe cohere_compass_text cwm diffusion_gemma_text dory dots1"
        " dots3_note_text exaone4 exaone_moe flint gemma4_text"
        " gemma4_unified_text granite_swa granitemoe_swa granitemoehybrid hy_v4 hy_v4_vl_text"
        " kolibri1 laguna lara_mini lfm3 mellum ministral"
        " muse_glimmer_text muse_spark_text step3p5 vaultgemma zamba zamba2 zaya": _as_listed,
        "bailing_hybrid": _last_of_period(FULL, LINEAR, 6, "layer_group_size"),
        "bamba": _bamba,
        "falcon_h1": _last_of_period(BOTH, BOTH, 1),
        "jamba": _jamba,
        "kimi_linear": _full_where_listed("linear_full_attn_layers", LINEAR, first_number=1),
        "lfm2 lfm2_moe": _full_where_listed("full_attn_idxs", CONV),
        "mimo_v2 mimo_v2_flash": _by_marks(
            "hybrid_layer_pattern", {0: FULL, 1: SLIDING}, _as_listed
        ),
        "minimax_m3_vl minimax_m3_vl_text": _by_marks(
            "sparse_attention_freq", {0: FULL, 1: INDEXED}, _as_listed
        ),
        "llama4_text": _by_marks("no_rope_layers", {1: CHUNKED, 0: FULL}, CHUNKS),
        "minimax minimax_m1 minimax_text_01": _by_marks(
            "attn_type_list", {0: LINEAR, 1: FULL}, _last_of_period(LINEAR, FULL, 2)
        ),
        "nemotron_h": _by_marks("hybrid_override_pattern", HYBRID),
        "olmo3": _last_of_period(FULL, SLIDING, 4),
        "olmo_hybrid qwen3_5_moe_text qwen3_5_text qwen3_next": _last_of_period(
            FULL, LINEAR, 4, "full_attention_interval"
        ),
    }
)
ORDERS = MappingProxyType(
    {name: order for names, order in BY_TYPE.items() for name in names.split()}
)
