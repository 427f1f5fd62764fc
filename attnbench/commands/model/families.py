"""Families of models: which maps, biases, norms and experts their layers have.

A size is always the file's. What files leave out, as whether the output's head is the embedding,
is here as transformers fills it in, under the name of the field.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from attnbench.commands.model.configuration import ConfigurationFields
from attnbench.commands.model.orders import MOE

Flag = bool | tuple[str, bool]  # always or never, or as a field says and what holds without it
Sparse = Callable[[ConfigurationFields, str, int], bool]  # whether a layer of a kind has experts

ATTENTION_BIAS = ("attention_bias", False)
ATTENTION_BIAS_ON = ("attention_bias", True)
MLP_BIAS = ("mlp_bias", False)
USE_BIAS = ("use_bias", False)
TIED = ("tie_word_embeddings", True)
UNTIED = ("tie_word_embeddings", False)
# what a norm of queries and keys has a gain for
A_HEAD = "each number of a head"
ALL_HEADS = "each number of all heads"


class Experts(NamedTuple):
    """The experts of a layer.

    number: names of the field that counts them.
    used: names of the field that counts those of one token.
    width: the field with the width of one.
    sparse: which layers have them.
    shared: the width of what all tokens pass through beside them.
    bias: whether maps and router have a bias.
    shared_gate: whether a number from the token scales what is shared.
    correction: whether the router has a trained correction for each expert.
    """

    number: tuple[str, ...]
    used: tuple[str, ...]
    width: str
    sparse: Sparse
    shared: Callable[[ConfigurationFields], int] | None = None
    bias: bool = False
    shared_gate: bool = False
    correction: bool = False


class ModelFamily(NamedTuple):
    """What the weights of a model type follow from, besides its sizes.

    tied: whether the output's head is the embedding.
    input_bias: of the maps to queries, keys and values.
    output_bias: of the map after attention.
    matrices: of a feed-forward: 3 with a gate, 2 without.
    feed_bias: of a feed-forward.
    query_norm: for what queries and keys have a gain, nothing without a norm.
    has_query_norm: whether they do.
    norms: of a layer.
    norm_size: numbers of a norm for each number of the model's width: 2 with a bias.
    dense_width: the field with the width of a feed-forward.
    experts: what layers have in place of a feed-forward.
    beside: whether layers have the experts and the feed-forward.
    head_bias: of the output's head.
    gated: whether attention's output has a gate with a map of its own.
    positions: the field that counts trained positions, none without them.
    embedding_norm: whether the embedding has a norm.
    """

    tied: Flag = UNTIED
    input_bias: Flag = False
    output_bias: Flag = False
    matrices: int = 3
    feed_bias: Flag = False
    query_norm: str = ""
    has_query_norm: Flag = True
    norms: int = 2
    norm_size: int = 1
    dense_width: str = "intermediate_size"
    experts: Experts | None = None
    head_bias: Flag = False
    gated: bool = False
    positions: str = ""
    embedding_norm: bool = False


def is_set(config: ConfigurationFields, flag: Flag) -> bool:
    """Whether a flag holds: always, or as the file says, or as it does without a word of it."""
    if isinstance(flag, bool):
        return flag
    name, usual = flag
    value = config.values.get(name)
    if not isinstance(value, bool | None):
        raise config.error(f"{name!r} is {value!r}; write true or false")
    return usual if value is None else value


def _always(config: ConfigurationFields, kind: str, index: int) -> bool:
    return True


def _after_dense(config: ConfigurationFields, kind: str, index: int) -> bool:
    """All but the first layers, or those that the file lists."""
    if config.has("mlp_layer_types"):
        return config.list_of("mlp_layer_types")[index : index + 1] != ["dense"]
    if isinstance(config.values.get("moe_layer_freq"), list):
        return config.list_of("moe_layer_freq")[index : index + 1] == [1]
    if config.size("moe_layer_freq", default=1) != 1:
        raise config.error("'moe_layer_freq' is not read here")
    return index >= config.size("first_k_dense_replace", least=0)


def _after_number(config: ConfigurationFields, kind: str, index: int) -> bool:
    return index >= config.size("num_dense_layers", least=0)


def _periodic(config: ConfigurationFields, kind: str, index: int) -> bool:
    """Every so many layers, but for those that the file excludes."""
    dense = config.list_of("mlp_only_layers") if config.values.get("mlp_only_layers") else []
    return index not in dense and (index + 1) % config.size("decoder_sparse_step", default=1) == 0


def _interleaved(config: ConfigurationFields, kind: str, index: int) -> bool:
    if config.values.get("moe_layers"):
        return index in config.list_of("moe_layers")
    return (index + 1) % config.size("interleave_moe_layer_step") == 0


def _between(config: ConfigurationFields, kind: str, index: int) -> bool:
    last = config.values.get("moe_layer_end_index")
    last = config.layers - 1 if last in (None, -1) else config.size("moe_layer_end_index", least=0)
    first = config.size("moe_layer_start_index", least=0)
    interval = config.size("moe_layer_interval", default=1)
    return (index + 1) % interval == 0 and first <= index <= last


def _jamba(config: ConfigurationFields, kind: str, index: int) -> bool:
    period = config.size("expert_layer_period")
    chosen = index % period == config.size("expert_layer_offset", least=0)
    return chosen and config.size("num_experts") > 1


def _of_kind(config: ConfigurationFields, kind: str, index: int) -> bool:
    return kind == MOE


def _has_local_experts(config: ConfigurationFields, kind: str, index: int) -> bool:
    return config.size("num_local_experts", least=0) > 0


def _several_shared(
    *number: str, width: str, required: bool = True
) -> Callable[[ConfigurationFields], int]:
    """The width of as many shared experts as a field says, of none if it is null.

    required: whether the field has to be there, as types have a number of their own.
    """

    def shared(config: ConfigurationFields) -> int:
        if required:
            config.require(*number)
        many = config.size(*number, least=0, default=0)
        return many * config.size(width) if many else 0

    return shared


def _width_of(*names: str, least: int = 0) -> Callable[[ConfigurationFields], int]:
    """The width that a field says."""

    def shared(config: ConfigurationFields) -> int:
        return config.size(*names, least=least)

    return shared


LOCAL = ("num_local_experts", "num_experts")
ROUTED = ("n_routed_experts", "num_local_experts", "num_experts")
USED = ("num_experts_per_tok",)
MIXTRAL = Experts(LOCAL, USED, "intermediate_size", _always)
OLMOE = Experts(("num_experts", "num_local_experts"), USED, "intermediate_size", _always)
QWEN = Experts(("num_experts", "num_local_experts"), USED, "moe_intermediate_size", _periodic)
QWEN_SHARED = QWEN._replace(shared=_width_of("shared_expert_intermediate_size"), shared_gate=True)
DEEPSEEK = Experts(
    ROUTED,
    USED,
    "moe_intermediate_size",
    _after_dense,
    _several_shared("n_shared_experts", "num_shared_experts", width="moe_intermediate_size"),
)
MIMO = DEEPSEEK._replace(
    shared=_several_shared("n_shared_experts", width="moe_intermediate_size", required=False)
)
KIMI = DEEPSEEK._replace(
    number=("num_experts",),
    used=("num_experts_per_token", "num_experts_per_tok"),
    shared=_several_shared("num_shared_experts", "n_shared_experts", width="moe_intermediate_size"),
)
AFMOE = KIMI._replace(used=USED, sparse=_after_number, correction=True)
COHERE = OLMOE._replace(
    sparse=_after_dense,
    shared=_several_shared("num_shared_experts", width="intermediate_size"),
)
KOLIBRI = QWEN._replace(sparse=_always, shared=_width_of("shared_expert_intermediate_size"))
LAGUNA = KOLIBRI._replace(sparse=_after_dense, correction=True)
GRANITE = MIXTRAL._replace(shared=_width_of("shared_intermediate_size"))
MINIMAX_3 = GRANITE._replace(sparse=_after_dense)
LLAMA_4 = MIXTRAL._replace(sparse=_interleaved, shared=_width_of("intermediate_size"))
HUNYUAN = OLMOE._replace(used=("moe_topk",), sparse=_always, shared=_width_of("intermediate_size"))
ERNIE = Experts(
    ("moe_num_experts",),
    ("moe_k",),
    "moe_intermediate_size",
    _between,
    _several_shared("moe_num_shared_experts", width="moe_intermediate_size"),
    correction=True,
)
NEMOTRON = DEEPSEEK._replace(
    sparse=_of_kind, shared=_width_of("moe_shared_expert_intermediate_size", least=1)
)
JAMBA = OLMOE._replace(sparse=_jamba)

PLAIN = ModelFamily()
BIASES = ModelFamily(input_bias=ATTENTION_BIAS, output_bias=ATTENTION_BIAS)
LLAMA = BIASES._replace(feed_bias=MLP_BIAS)
WITH_MOE = BIASES._replace(experts=MIXTRAL)
GEMMA = BIASES._replace(tied=TIED)
LAYER_NORMS = ModelFamily(norm_size=2)
MLA = LLAMA._replace(feed_bias=False, experts=DEEPSEEK)
GLM_MOE = ModelFamily(
    input_bias=ATTENTION_BIAS,
    query_norm=A_HEAD,
    has_query_norm=("use_qk_norm", False),
    experts=DEEPSEEK,
)
CLASSIC = ModelFamily(  # with a bias wherever there can be one
    tied=TIED, input_bias=True, output_bias=True, matrices=2, feed_bias=True, norm_size=2
)
BY_TYPE: Mapping[str, ModelFamily] = MappingProxyType(
    {
        "ministral ministral3 mistral phi3": PLAIN,
        "bamba exaone falcon_h1 granite internlm3 iquestcoder llama": LLAMA,
        "cwm": PLAIN._replace(feed_bias=MLP_BIAS),
        "granite_docling_text minicpm3 smollm3": LLAMA._replace(tied=TIED),
        "exaone4": PLAIN._replace(query_norm=A_HEAD),
        "exaone_moe": PLAIN._replace(query_norm=A_HEAD, experts=KIMI._replace(used=USED)),
        "olmo": BIASES._replace(norms=0),
        "olmo2 olmo3": BIASES._replace(query_norm=ALL_HEADS),
        "olmoe flex_olmo": BIASES._replace(query_norm=ALL_HEADS, experts=OLMOE),
        "olmo_hybrid": BIASES._replace(query_norm=ALL_HEADS),
        "cohere": GEMMA._replace(
            query_norm=ALL_HEADS, has_query_norm=("use_qk_norm", False), norms=1
        ),
        "cohere2": GEMMA._replace(norms=1),
        "cohere2_moe": GEMMA._replace(
            norms=1, dense_width="prefix_dense_intermediate_size", experts=COHERE
        ),
        "granitemoe": WITH_MOE,
        "granitemoeshared": WITH_MOE._replace(experts=GRANITE),
        "granitemoehybrid": WITH_MOE._replace(experts=GRANITE._replace(sparse=_has_local_experts)),
        "ernie4_5": ModelFamily(
            tied=TIED, input_bias=USE_BIAS, output_bias=USE_BIAS, feed_bias=USE_BIAS
        ),
        "ernie4_5_moe": ModelFamily(
            tied=TIED,
            input_bias=USE_BIAS,
            output_bias=USE_BIAS,
            feed_bias=USE_BIAS,
            experts=ERNIE,
            head_bias=USE_BIAS,
        ),
        "hunyuan_v1_dense": BIASES._replace(query_norm=A_HEAD),
        "hunyuan_vl_text": GEMMA._replace(query_norm=A_HEAD),
        "hy_v3": LLAMA._replace(query_norm=A_HEAD, experts=KIMI._replace(used=USED)),
        "hunyuan_v1_moe": BIASES._replace(query_norm=A_HEAD, experts=HUNYUAN),
        "seed_oss": ModelFamily(
            input_bias=ATTENTION_BIAS_ON,
            output_bias=("attention_out_bias", False),
            feed_bias=MLP_BIAS,
        ),
        "afmoe": BIASES._replace(query_norm=A_HEAD, norms=4, experts=AFMOE, gated=True),
        "apertus": BIASES._replace(query_norm=A_HEAD, matrices=2),
        "arcee cosmos3_edge_text": LLAMA._replace(matrices=2),
        "bitnet": BIASES,
        "helium": ModelFamily(input_bias=ATTENTION_BIAS, feed_bias=MLP_BIAS),
        "nemotron": LLAMA._replace(matrices=2, norm_size=2),
        "phimoe": WITH_MOE._replace(norm_size=2, head_bias=("lm_head_bias", False)),
        "stablelm": ModelFamily(
            input_bias=("use_qkv_bias", False),
            query_norm=ALL_HEADS,
            has_query_norm=("qk_layernorm", False),
            norm_size=2,
        ),
        "starcoder2": ModelFamily(
            tied=TIED,
            input_bias=("use_bias", True),
            output_bias=("use_bias", True),
            feed_bias=("use_bias", True),
            matrices=2,
            norm_size=2,
        ),
        "jais2": ModelFamily(
            input_bias=ATTENTION_BIAS_ON,
            output_bias=ATTENTION_BIAS_ON,
            feed_bias=("mlp_bias", True),
            matrices=2,
            norm_size=2,
        ),
        "glm": ModelFamily(input_bias=ATTENTION_BIAS_ON),
        "glm4 glm_image_text": ModelFamily(input_bias=ATTENTION_BIAS_ON, norms=4),
        "glm4v_text": ModelFamily(input_bias=True, norms=4),
        "glm_ocr_text": PLAIN._replace(norms=4),
        "deepseek glm4_moe": GLM_MOE,
        "glm4v_moe_text": ModelFamily(input_bias=ATTENTION_BIAS_ON, experts=DEEPSEEK),
        "mimo_v2 mimo_v2_flash": ModelFamily(input_bias=ATTENTION_BIAS, experts=MIMO),
        "solar_open": ModelFamily(
            input_bias=ATTENTION_BIAS, experts=DEEPSEEK._replace(sparse=_always)
        ),
        "sarvam_moe": GLM_MOE._replace(has_query_norm=("use_qk_norm", True)),
        "gemma vaultgemma youtu": GEMMA,
        "gemma2": GEMMA._replace(norms=4),
        "gemma3_text gemma3n_text gemma4_text gemma4_unified_text": GEMMA._replace(
            norms=4, query_norm=A_HEAD
        ),
        "mixtral": PLAIN._replace(experts=MIXTRAL),
        "minimax minimax_m1 minimax_text_01": PLAIN._replace(experts=MIXTRAL),
        "minimax_m3_vl minimax_m3_vl_text": PLAIN._replace(
            query_norm=A_HEAD, dense_width="dense_intermediate_size", experts=MINIMAX_3
        ),
        "minimax_m2": PLAIN._replace(query_norm=ALL_HEADS, experts=MIXTRAL),
        "qwen2 qwen2_5_vl_text qwen2_vl_text": ModelFamily(input_bias=True),
        "qwen2_moe": ModelFamily(input_bias=("qkv_bias", True), experts=QWEN_SHARED),
        "qwen3 qwen3_vl_text": BIASES._replace(query_norm=A_HEAD),
        "qwen3_moe qwen3_vl_moe_text": BIASES._replace(query_norm=A_HEAD, experts=QWEN),
        "mellum": BIASES._replace(query_norm=A_HEAD, experts=QWEN),
        "dots1": BIASES._replace(query_norm=A_HEAD, experts=DEEPSEEK),
        "kolibri1": PLAIN._replace(norms=4, query_norm=A_HEAD, experts=KOLIBRI),
        "laguna": BIASES._replace(query_norm=A_HEAD, experts=LAGUNA),
        "muse_glimmer_text": BIASES._replace(norms=4, gated=True),
        "qwen3_5_text": BIASES._replace(query_norm=A_HEAD),
        "qwen3_next": BIASES._replace(query_norm=A_HEAD, experts=QWEN_SHARED),
        "qwen3_5_moe_text": BIASES._replace(
            query_norm=A_HEAD, experts=QWEN_SHARED._replace(sparse=_always)
        ),
        "gpt_oss": ModelFamily(
            input_bias=ATTENTION_BIAS_ON,
            output_bias=ATTENTION_BIAS_ON,
            experts=MIXTRAL._replace(bias=True),
        ),
        "llama4_text": BIASES._replace(dense_width="intermediate_size_mlp", experts=LLAMA_4),
        "deepseek_v2": MLA._replace(feed_bias=MLP_BIAS),
        "deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa kimi_k2": MLA,
        "mistral4 sarvam_mla": MLA,
        "deepseek_v4": ModelFamily(feed_bias=MLP_BIAS, experts=DEEPSEEK._replace(sparse=_always)),
        "kimi_linear": MLA._replace(tied=False, experts=KIMI),
        "mamba falcon_mamba": ModelFamily(tied=TIED, norms=1),
        "mamba2": ModelFamily(norms=1),
        "jamba": ModelFamily(experts=JAMBA),
        "nemotron_h": ModelFamily(
            tied=False, matrices=2, norms=1, feed_bias=MLP_BIAS, experts=NEMOTRON
        ),
        "lfm2": ModelFamily(tied=TIED, query_norm=A_HEAD),
        "lfm2_moe": ModelFamily(
            tied=TIED,
            query_norm=A_HEAD,
            experts=AFMOE._replace(shared=None, correction=False),
        ),
        "bloom": CLASSIC._replace(dense_width="", embedding_norm=True),
        "gpt2": CLASSIC._replace(dense_width="n_inner", positions="n_positions"),
        "gpt_neox": CLASSIC._replace(
            tied=UNTIED, input_bias=ATTENTION_BIAS_ON, output_bias=ATTENTION_BIAS_ON
        ),
        "gptj": CLASSIC._replace(
            tied=UNTIED,
            input_bias=False,
            output_bias=False,
            norms=1,
            dense_width="n_inner",
            head_bias=True,
        ),
        "persimmon": CLASSIC._replace(
            tied=UNTIED, query_norm=A_HEAD, has_query_norm=("qk_layernorm", True)
        ),
        "phi": CLASSIC._replace(
            tied=UNTIED,
            query_norm=A_HEAD,
            has_query_norm=("qk_layernorm", False),
            norms=1,
            head_bias=True,
        ),
    }
)
FAMILIES = MappingProxyType(
    {name: family for names, family in BY_TYPE.items() for name in names.split()}
)
