"""The layers of a model's configuration: their order, and what each kind keeps of the context."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attnbench.workloads.configuration import Fields, fields
from attnbench.workloads.context import Layer, Part

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
LINEAR, CONV, HYBRID = "linear_attention", "conv", "hybrid"
INDEXED, BLOCKS = "indexed_attention", "minimax_m3_sparse"
SPARSE, HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"
MOE, MLP = "moe", "mlp"  # layers without attention
OLDER = MappingProxyType(
    {
        "attention": FULL,
        "mamba": LINEAR,
        "deepseek_sparse_attention": INDEXED,
        "qwen_sparse_attention": INDEXED,
    }
)
RATIOS = MappingProxyType({0: SLIDING, 4: SPARSE, 128: HEAVY})  # tokens to an entry
FLOAT32, INT64 = 4, 8  # bytes of recurrent states and of positions, whatever the cache's type

Order = Callable[[Fields], list[str]]
Cache = tuple[str, tuple[Part, ...], tuple[Part, ...]]  # its words, what is needed, what is kept


@dataclass(frozen=True, kw_only=True)
class Model:
    """The layers of a configuration; `checked` if caches of its type of model were compared.

    `dtype` is what the file says, or nothing.
    """

    type: str
    dtype: str
    layers: tuple[Layer, ...]
    checked: bool


def model(path: Path) -> Model:
    """The layers of a file such as `config.json`. Raises `UsageError`."""
    of = fields(path)
    return Model(
        type=of.type,
        dtype=of.text("dtype", "torch_dtype").removeprefix("torch."),
        layers=tuple(_layer(of, kind, index) for index, kind in enumerate(_kinds(of))),
        checked=of.type in ORDERS,
    )


def _kinds(of: Fields) -> list[str]:
    """The kind of each layer, as the file lists them or as its type of model orders them."""
    name = next(filter(of.has, ("layer_types", "layers_block_type")), None)
    if name is None and of.type not in ORDERS:
        raise of.error(
            f"how model type {of.type!r} orders its layers is not known; add 'layer_types', a list"
            f" of {', '.join(KINDS)}"
        )
    kinds = ORDERS[of.type](of) if name is None else [OLDER.get(k, k) for k in of.listed(name)]
    if of.has("num_hidden_layers") and len(kinds) != of.layers:
        raise of.error(f"{name!r} names {len(kinds)} layers, and 'num_hidden_layers' {of.layers}")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise of.error(f"unknown kind of layer {unknown[0]!r}; known are {', '.join(KINDS)}")
    if of.type.startswith("qwen4_exp"):  # whose files call them full
        return [INDEXED if kind == FULL else kind for kind in kinds]
    return kinds


def _windows(of: Fields) -> list[str]:
    """The same in all layers, or if the file says so windows from some layer on."""
    usual = not of.type.startswith("qwen")
    used = of.has("sliding_window") and of.values.get("use_sliding_window", usual)
    first = of.size("max_window_layers", least=0) if of.type in ("qwen2", "qwen3") and used else 0
    return [SLIDING if used and i >= first else FULL for i in range(of.layers)]


def _last(of: Fields, last: str, others: str, every: int, name: str = "") -> list[str]:
    """The last of `every` few layers is of one kind; a field of this name overrides how many."""
    every = of.size(name) if of.has(name) else every
    return [others if (i + 1) % every else last for i in range(of.layers)]


def _chosen(of: Fields, name: str, others: str = LINEAR, first: int = 0) -> list[str]:
    """Full attention in the layers that a field lists, numbered from `first`."""
    chosen = of.listed(name)
    return [FULL if i + first in chosen else others for i in range(of.layers)]


def _marked(of: Fields, name: str, kinds: Mapping[Any, str]) -> list[str]:
    """A mark for each layer, and for those that predict further tokens, which are left out."""
    marks = of.listed(name)[: of.layers if of.has("num_hidden_layers") else None]
    if unknown := [mark for mark in marks if mark not in kinds]:
        known = ", ".join(map(str, kinds))
        raise of.error(f"unknown kind of layer {unknown[0]!r} in {name!r}; known are {known}")
    return [kinds[mark] for mark in marks]


def _minimax(of: Fields) -> list[str]:
    if of.has("attn_type_list"):
        return _marked(of, "attn_type_list", {0: LINEAR, 1: FULL})
    return _last(of, LINEAR, FULL, 2)


def _jamba(of: Fields) -> list[str]:
    every, first = of.size("attn_layer_period"), of.size("attn_layer_offset", least=0)
    return [FULL if i % every == first else LINEAR for i in range(of.layers)]


ALIKE = (
    "deepseek_v2 deepseek_v3 glm4_moe glm4_moe_lite kimi_k2 llama minimax_m2 mistral mixtral phi3"
    " qwen2 qwen3 qwen3_moe starcoder2"
)
DELTA = "olmo_hybrid qwen3_5_moe_text qwen3_5_text qwen3_next qwen4_exp_text"
# how the types of models whose caches were compared order layers that their files do not list
ORDERS: Mapping[str, Order] = MappingProxyType(
    dict.fromkeys(ALIKE.split(), _windows)
    | dict.fromkeys(DELTA.split(), lambda of: _last(of, FULL, LINEAR, 4, "full_attention_interval"))
    | dict.fromkeys(("gemma4_text", "granitemoehybrid"), lambda of: of.listed("layer_types"))
    | dict.fromkeys(("falcon_mamba", "mamba", "mamba2"), lambda of: [LINEAR] * of.layers)
    | dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), lambda of: [INDEXED] * of.layers)
    | dict.fromkeys(("minimax", "minimax_m1", "minimax_text_01"), _minimax)
    | dict.fromkeys(("gemma2", "gpt_oss"), lambda of: _last(of, FULL, SLIDING, 2))
    | {
        "bamba": lambda of: _chosen(of, "attn_layer_indices"),
        "cohere2": lambda of: _last(of, FULL, SLIDING, 4, "sliding_window_pattern"),
        "deepseek_v4": lambda of: _marked(of, "compress_ratios", RATIOS),
        "falcon_h1": lambda of: [HYBRID] * of.layers,
        "gemma3_text": lambda of: _last(of, FULL, SLIDING, 6, "sliding_window_pattern"),
        "gemma3n_text": lambda of: _last(of, FULL, SLIDING, 5),
        "glm5_next_text": lambda of: _last(of, INDEXED, LINEAR, 4),
        "jamba": _jamba,
        "kimi_linear": lambda of: _chosen(of, "linear_full_attn_layers", first=1),
        "lfm2": lambda of: _chosen(of, "full_attn_idxs", CONV),
        "llama4_text": lambda of: _last(of, FULL, CHUNKED, 4, "no_rope_layer_interval"),
        "minimax_m3_vl_text": lambda of: _marked(of, "sparse_attention_freq", {0: FULL, 1: BLOCKS}),
        "nemotron_h": lambda of: _marked(
            of, "hybrid_override_pattern", {"M": LINEAR, "*": FULL, "E": MOE, "-": MLP}
        ),
        "zamba2": lambda of: of.listed("layers_block_type"),
        "olmo3": lambda of: _last(of, FULL, SLIDING, 4),
    }
)


def _layer(of: Fields, kind: str, index: int) -> Layer:
    words, needed, kept = KINDS[kind](of, kind, index)
    shared = of.size("num_kv_shared_layers", least=0) if of.has("num_kv_shared_layers") else 0
    if shared and index >= of.layers - shared > 0:
        words, needed, kept = f"{words}, shared with an earlier layer", (), ()
    full: int | None = 0 if kind in (MOE, MLP) else None
    if full is None and of.has("num_attention_heads", "kv_lora_rank"):
        full = _tokens(of, kind)[1]
    return Layer(kind=words, needed=needed, transformers=kept, full=full)


def _tokens(of: Fields, kind: str = FULL) -> tuple[str, int]:
    """What attention keeps of a token, in words and in numbers."""
    if of.has("kv_lora_rank"):
        rank, rope = of.size("kv_lora_rank"), of.size("qk_rope_head_dim", least=0)
        return f"latent {rank:,} + {rope:,}", rank + rope
    queries = of.size("num_attention_heads")
    heads = of.size("num_key_value_heads") if of.has("num_key_value_heads") else queries
    width = _head_width(of, queries)
    if kind != SLIDING and of.has("global_head_dim"):
        width = of.size("global_head_dim")
        if of.values.get("attention_k_eq_v") and of.has("num_global_key_value_heads"):
            heads = of.size("num_global_key_value_heads")
    tensors = 1 if of.type == "deepseek_v4" else 2  # its keys are its values
    return f"{heads} × {width:,}", tensors * heads * width


def _head_width(of: Fields, heads: int) -> int:
    """What the file says, or its share of the model's width."""
    if of.has("attention_head_dim", "head_dim"):
        return of.size("attention_head_dim", "head_dim")
    return of.size("hidden_size", least=heads) // heads


def _nothing(of: Fields, kind: str, index: int) -> Cache:
    return f"{kind}, without attention", (), ()


def _full(of: Fields, kind: str, index: int) -> Cache:
    words, numbers = _tokens(of)
    return f"full, {words}", (Part(numbers),), (Part(numbers),)


def _window(of: Fields, kind: str, index: int) -> Cache:
    """All of a window or chunk but its last token, which is the one that looks back."""
    words, numbers = _tokens(of, kind)
    window = of.size("sliding_window" if kind == SLIDING else "attention_chunk_size")
    twice = 2 if of.type == "deepseek_v4" else 1
    needed, kept = (Part(n, most=window - 1) for n in (numbers, twice * numbers))
    return f"{kind.removesuffix('_attention')} {window:,}, {words}", (needed,), (kept,)


def _indexed(of: Fields, kind: str, index: int) -> Cache:
    """Beside the cache keys of an indexer, of each token or of each pool of tokens."""
    words, numbers = _tokens(of)
    words, base = f"indexed, {words}", Part(numbers)
    if _reuses(of, index):
        return f"{words}, index of an earlier layer", (base,), (base,)
    width = of.size("index_head_dim", "indexer_head_dim", "sparse_index_dim")
    words, parts = f"{words}, index {width:,}", (base, Part(width))
    if not of.has("index_kpool", "indexer_compress_ratio"):
        return words, parts, parts
    pool = of.size("index_kpool", "indexer_compress_ratio")
    gated = of.has("index_kpool")  # pools weighed by gates; kept with each is whether it is padding
    waiting = Part(2 * width if gated else width, every=pool, rest=True)
    kept = [base, Part(2 * width + 1 if gated else width)]
    if of.type.startswith("qwen4_exp") and index == _kinds(of).index(INDEXED):
        kept.append(Part(3, item_bytes=INT64))  # positions of text and images, for all layers
    return f"{words} in pools of {pool:,}", (base, Part(width, every=pool), waiting), tuple(kept)


def _reuses(of: Fields, index: int) -> bool:
    """Whether a layer takes what an earlier one has selected."""
    name = next(filter(of.has, ("indexer_types", "index_topk_pattern")), None)
    if name is not None:
        return of.listed(name)[index : index + 1] in (["shared"], ["S"])
    first = of.size("index_skip_topk_offset") if of.has("index_skip_topk_offset") else 2
    every = of.size("index_topk_freq") if of.has("index_topk_freq") else 1
    return max(index - first + 1, 0) % every != 0


def _compressed(of: Fields, kind: str, index: int) -> Cache:
    """A window, and gated pools of all tokens; sparse ones overlap and have an index."""
    words, width = _tokens(of)
    rates = of.values.get("compress_rates")
    ratio = next(ratio for ratio, name in RATIOS.items() if name == kind)
    ratio = Fields(of.file, rates).size(kind) if isinstance(rates, dict) else ratio
    parts = [Part(width, most=of.size("sliding_window") - 1)]
    overlaps = kind == SPARSE
    for pooled in [width, of.size("index_head_dim")] if overlaps else [width]:
        waiting = Part(2 * pooled * (2 if overlaps else 1), every=ratio, rest=True)  # with gates
        parts += [Part(pooled, every=ratio), waiting]
        parts += [Part(2 * pooled * ratio, every=ratio, most=1)] * overlaps
    name = kind.removesuffix("_attention").replace("_", " ")
    return f"{name} {ratio:,}, {words}", tuple(parts), tuple(parts)


def _linear(of: Fields, kind: str, index: int) -> Cache:
    """A recurrent state, and the last tokens of a short convolution."""
    shape, channels = _state(of)
    words = f"linear, state {' × '.join(f'{size:,}' for size in shape)}"
    parts = _embedded(of, index)
    if not channels:
        parts = (*parts, Part(prod(shape), most=1))
        return words, parts, parts
    parts = (*parts, Part(prod(shape), most=1, item_bytes=FLOAT32))
    names = ("linear_conv_kernel_dim", "linear_short_conv_kernel_size")
    more, needed, kept = _last_tokens(channels, of.size(*names, "mamba_d_conv", "conv_kernel"))
    return f"{words}, {more}", parts + needed, parts + kept


def _state(of: Fields) -> tuple[tuple[int, ...], int]:
    """The shape of a state, and the channels of the convolution before it, 0 without one."""
    if of.has("linear_num_value_heads"):  # gated delta rule
        heads, values = of.size("linear_num_value_heads"), of.size("linear_value_head_dim")
        keys = of.size("linear_key_head_dim")
        channels = 2 * of.size("linear_num_key_heads") * keys + heads * values
        return (heads, keys, values), channels
    if of.has("linear_num_heads"):  # Kimi's delta rule
        heads, width = of.size("linear_num_heads"), of.size("linear_head_dim")
        return (heads, width, width), 3 * heads * width
    if of.type.startswith("minimax"):  # lightning attention
        heads = of.size("num_attention_heads")
        return (heads, *[_head_width(of, heads)] * 2), 0
    state, inner = of.size("mamba_d_state", "ssm_state_size", "state_size"), _inner(of)
    groups = ("mamba_n_groups", "mamba_ngroups", "n_groups")  # of Mamba-2
    return (inner, state), inner + (2 * of.size(*groups) * state if of.has(*groups) else 0)


def _inner(of: Fields) -> int:
    """The channels of a Mamba layer's state."""
    if of.has("mamba_num_heads"):
        return of.size("mamba_num_heads") * of.size("mamba_head_dim")
    name = "intermediate_size" if of.type in ("falcon_mamba", "mamba") else "mamba_d_ssm"
    if of.has(name):
        return of.size(name)
    return of.size("mamba_expand", "expand") * of.size("hidden_size")


def _embedded(of: Fields, index: int) -> tuple[Part, ...]:
    """What the embedding of n-grams keeps in some layers: a dilated convolution, and tokens."""
    if not of.values.get("ple_layer_ids") or index + 1 not in of.listed("ple_layer_ids"):
        return ()
    tokens, width = of.size("ngram_size"), of.size("ple_conv_kernel_size")
    channels = of.size("hc_count") * of.size("hidden_size")
    ids = Part(tokens - 1, most=1, item_bytes=INT64)
    return Part(channels * (width - 1) * tokens, most=1), ids


def _conv(of: Fields, kind: str, index: int) -> Cache:
    return _last_tokens(of.size("hidden_size"), of.size("conv_L_cache"))


def _last_tokens(channels: int, width: int) -> Cache:
    """A convolution, of which transformers keeps its whole width, whatever the length."""
    needed, kept = Part(channels, most=width - 1), Part(channels * width, most=1)
    return f"convolution {width}", (needed,), (kept,)


def _hybrid(of: Fields, kind: str, index: int) -> Cache:
    """Full attention and a recurrence in one layer."""
    words, attention, _ = _full(of, kind, index)
    more, needed, kept = _linear(of, kind, index)
    return f"{words}, and {more}", attention + needed, attention + kept


KINDS: Mapping[str, Callable[[Fields, str, int], Cache]] = MappingProxyType(
    {
        FULL: _full,
        SLIDING: _window,
        CHUNKED: _window,
        INDEXED: _indexed,
        BLOCKS: _indexed,
        SPARSE: _compressed,
        HEAVY: _compressed,
        LINEAR: _linear,
        CONV: _conv,
        HYBRID: _hybrid,
        MOE: _nothing,
        MLP: _nothing,
    }
)
