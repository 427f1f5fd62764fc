"""Which registered mechanism computes each kind of layer of a configuration, at its true sizes.

The feed-forwards of layers are kinds of their own.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from attnbench.commands.model import orders
from attnbench.commands.model.configuration import ConfigurationFields, fields
from attnbench.commands.model.configured_layers import (
    KEYS_ARE_VALUES,
    head_counts,
    layers_with_fields,
)
from attnbench.commands.model.context import CachePart, Layer
from attnbench.commands.model.feed_forwards import ALONE, CannotExpress, feed_forward
from attnbench.commands.model.orders import FULL, SLIDING
from attnbench.commands.model.states import MAMBA_1, state_shape
from attnbench.records import Option, Selection

Options = dict[str, Option]

GATED = ("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next")  # whose attention always has a gate
FULL_GATES = ("bailing_hybrid",)
SINKS = ("gpt_oss",)
# types whose layers' weights were compared with those of the mechanisms; others may have gates and
# norms of which their files say nothing
WEIGHED = frozenset(
    (
        *("apertus", "arcee", "bailing_hybrid", "bamba", "bitnet", "chatglm", "cohere", "cohere2"),
        *("deepseek", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4"),
        *("ernie4_5", "ernie4_5_moe", "mimo_v2", "minimax_m3_vl"),
        *("falcon", "falcon_h1", "falcon_mamba", "flex_olmo", "gemma", "gemma2", "gemma3_text"),
        *("gemma3n_text", "gemma4_text", "glm4", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa"),
        *("gpt_oss", "granite", "granitemoe", "granitemoehybrid", "granitemoeshared", "helium"),
        *("hunyuan_v1_dense", "hunyuan_v1_moe", "internlm3", "jamba", "kimi_k2", "kimi_linear"),
        *("lfm2", "lfm2_moe", "llama", "llama4_text", "mamba", "mamba2", "mimo_v2_flash"),
        *("minimax", "minimax_m1", "minimax_m2", "minimax_m3_vl_text", "minimax_text_01"),
        *("ministral3", "mistral", "mistral4", "mixtral", "nemotron", "nemotron_h", "olmo"),
        *("olmo2", "olmo3", "olmo_hybrid", "olmoe", "phi3", "phimoe", "qwen2", "qwen3"),
        *("qwen3_5_moe_text", "qwen3_5_text", "qwen3_moe", "qwen3_next", "qwen3_vl_text"),
        *("seed_oss", "smollm3", "stablelm", "starcoder2", "zamba2", "zaya"),
    )
)
NOT_HERE = MappingProxyType(
    {
        orders.CHUNKED: "no mechanism here reads causal chunks of keys",
        orders.SPARSE: "no mechanism here reads gated pools",
        orders.HEAVY: "no mechanism here reads gated pools",
        orders.CONV: "no mechanism here is a convolution alone",
        orders.BOTH: "no mechanism here is attention and a recurrence in one layer",
        orders.BOTH_SLIDING: "no mechanism here is attention and a recurrence in one layer",
    }
)


class Kind(NamedTuple):
    """The layers of one kind: in words, their number, and what each keeps of the context.

    `mechanism` computes one of them, as `--models` has it; without one, `reason` says why, or is
    empty for layers without attention. `feeds`: whether it is the feed-forward of so many layers.
    """

    words: str
    layers: int
    parts: tuple[CachePart, ...]
    mechanism: str
    reason: str
    feeds: bool = False


class Measurable(NamedTuple):
    """The kinds of layers of a model, its width, and heads that divide the width."""

    width: int
    heads: int
    kinds: tuple[Kind, ...]

    def without(self, left_out: Mapping[str, str]) -> "Measurable":
        """The same without what is left out: mechanisms, each with the reason."""
        kinds = (
            kind._replace(mechanism="", reason=left_out[kind.mechanism])
            if kind.mechanism in left_out
            else kind
            for kind in self.kinds
        )
        return self._replace(kinds=tuple(kinds))


def measurable(path: Path, feeds: bool = True) -> Measurable:
    """What of the model of a file such as `config.json` can be measured, if asked with `feeds`,
    its feed-forwards.

    Raises `UsageError`.
    """
    config = fields(path)
    width = config.size("hidden_size")
    heads = config.size("num_attention_heads", default=1)
    heads = heads if width % heads == 0 else 1
    mixers: dict[str, Kind] = {}
    feed_forwards: dict[str, Kind] = {}
    for index, (name, layer, layer_fields) in enumerate(layers_with_fields(config)):
        if not (feeds and name in ALONE):
            mixer = mixers.get(layer.kind) or _mixer_kind(layer_fields, name, layer, width, heads)
            mixers[layer.kind] = mixer._replace(layers=mixer.layers + 1)
        feed = _feed_kind(layer_fields, name, index) if feeds else None
        if feed is not None:
            kind = feed_forwards.setdefault(feed.words, feed)
            feed_forwards[feed.words] = kind._replace(layers=kind.layers + 1)
    return Measurable(width, heads, (*mixers.values(), *feed_forwards.values()))


def _mixer_kind(
    config: ConfigurationFields, kind: str, layer: Layer, width: int, heads: int
) -> Kind:
    """A kind of layer by what it does before its feed-forward, as yet of no layer."""
    mechanism = ""
    reason = ""
    try:
        mechanism = _mechanism(config, kind, layer, width, heads)
    except CannotExpress as error:
        reason = str(error)
    return Kind(layer.kind, 0, layer.parts, mechanism, reason)


def _feed_kind(config: ConfigurationFields, kind: str, index: int) -> Kind | None:
    """The feed-forward of a layer as a kind, as yet of no layer; None for a layer without one."""
    try:
        feed = feed_forward(config, kind, index)
    except CannotExpress as error:
        return Kind("feed-forward", 0, (), "", str(error), feeds=True)
    return feed and Kind(feed.words, 0, (), feed.mechanism, "", feeds=True)


def _mechanism(config: ConfigurationFields, kind: str, layer: Layer, width: int, heads: int) -> str:
    """The mechanism of a kind of layer; empty without attention. Raises `CannotExpress`."""
    if kind in (orders.MOE, orders.MLP):
        return ""
    if kind in NOT_HERE:
        raise CannotExpress(NOT_HERE[kind])
    if not layer.parts:
        raise CannotExpress("it reads what an earlier layer keeps")
    if "index of an earlier layer" in layer.kind:
        raise CannotExpress("no mechanism here reads by the index of an earlier layer")
    name, options = (_recurrence_options if kind == orders.LINEAR else _attention_options)(
        config, kind
    )
    sizes = options.get("heads"), options.get("head_width")
    if sizes == (heads, width // heads) and name not in OTHER_HEADS:
        options = {key: value for key, value in options.items() if key not in HEADS}
    # by identity, since a size of 0 equals False
    given_options = {
        key: value for key, value in options.items() if value is not None and value is not False
    }
    return str(Selection(name=name, options=tuple(sorted(given_options.items()))))


HEADS = ("heads", "head_width")
OTHER_HEADS = ("mamba2",)  # whose heads, unless they are given, are not those of the workload


def _attention_options(config: ConfigurationFields, kind: str) -> tuple[str, Options]:
    bias = config.values.get("attention_bias") is True
    if kind == orders.INDEXED:
        return "indexed", _indexed_options(config) | {"bias": bias}
    if config.has("kv_lora_rank"):
        if kind == SLIDING:
            raise CannotExpress("no mechanism here reads a window of latents")
        if config.type in FULL_GATES or config.values.get("mla_use_output_gate"):
            raise CannotExpress("no mechanism here reads latents and has a gate")
        return "latent", _latent_options(config) | {"bias": bias}
    full_ones = kind != SLIDING and config.values.get("attention_k_eq_v")
    if full_ones or config.type in KEYS_ARE_VALUES:
        raise CannotExpress("no mechanism here has keys that are its values")
    kv_heads, width = head_counts(config, kind)
    if (values := config.size("v_head_dim", default=width)) != width:
        raise CannotExpress(f"heads of values are {values} wide, of keys {width}")
    options: Options = {
        "heads": config.size("num_attention_heads"),
        "head_width": width,
        "kv_heads": kv_heads,
        "bias": bias,
        "sink_logit": config.type in SINKS,
    }
    gated = config.type in GATED or config.values.get("attn_output_gate") is True
    if kind == FULL:
        return "grouped_query", options | {"gate": gated}
    if gated:
        raise CannotExpress("windows with a gate are not measured here")
    return "sliding_window", options | {"window": config.size("sliding_window")}


def _latent_options(config: ConfigurationFields) -> Options:
    width = config.size("qk_nope_head_dim")
    if (values := config.size("v_head_dim")) != width:
        raise CannotExpress(
            f"heads of values are {values} wide, of keys {width}; latent has one width"
        )
    return {
        "heads": config.size("num_attention_heads"),
        "head_width": width,
        "kv_rank": config.size("kv_lora_rank"),
        "query_rank": config.size("q_lora_rank") if config.has("q_lora_rank") else None,
        "rope": config.size("qk_rope_head_dim", least=0),
    }


def _indexed_options(config: ConfigurationFields) -> Options:
    """Single tokens of latents by the index of DeepSeek-V3.2."""
    latent_options = _latent_options(config) if config.has("kv_lora_rank") else {}
    rope = latent_options.pop("rope", None)
    if rope is None or 2 * rope != latent_options["head_width"]:
        raise CannotExpress("indexed reads latents whose keys have half as many rotated numbers")
    return latent_options | {
        "block": 1,
        "budget": config.size("index_topk"),
        "index_heads": config.size("index_n_heads"),
        "index_width": config.size("index_head_dim"),
    }


def _recurrence_options(config: ConfigurationFields, kind: str) -> tuple[str, Options]:
    """A recurrence by what its fields say of it, as `states.state_shape` reads them."""
    (heads, *widths), _ = state_shape(config)
    if config.has("linear_num_value_heads"):
        keys = config.size("linear_num_key_heads")
        values = heads
        key_width, value_width = widths
        if values % keys:
            raise CannotExpress(f"{values} heads of values cannot share {keys} of keys equally")
        expand, rest = divmod(values * value_width, keys * key_width)
        if rest:
            raise CannotExpress("its values are no whole multiple as wide as its keys")
        return "gated_delta_net", {
            "heads": keys,
            "head_width": key_width,
            "value_heads": values,
            "expand": expand,
            "conv": config.size("linear_conv_kernel_dim"),
        }
    if config.has("linear_num_heads"):
        if config.type in FULL_GATES or config.values.get("linear_use_full_rank_gate"):
            raise CannotExpress("no mechanism here is a delta rule whose gate has full rank")
        conv = config.size("linear_conv_kernel_dim", "linear_short_conv_kernel_size")
        return "kimi_delta", {"heads": heads, "head_width": widths[0], "conv": conv}
    if config.type.startswith("minimax"):
        return "lightning", {"heads": heads, "head_width": widths[0]}
    if config.type in MAMBA_1:
        raise CannotExpress("no mechanism here is a Mamba-1")
    return "mamba2", _mamba2_options(config, heads, widths[0])


def _mamba2_options(config: ConfigurationFields, channels: int, state: int) -> Options:
    """The options of a Mamba-2 whose state has so many channels and, for each, `state` numbers."""
    heads = config.size("mamba_num_heads", "mamba_n_heads", "num_heads")
    groups = config.size("mamba_n_groups", "n_groups")
    if channels % heads:
        raise CannotExpress(f"{channels:,} channels are no whole multiple of its {heads:,} heads")
    if heads % groups:
        raise CannotExpress(f"its {heads:,} heads are no whole multiple of its {groups:,} groups")
    width = channels // heads
    names = ("mamba_head_dim", "mamba_d_head", *(("head_dim",) if config.type == "mamba2" else ()))
    # granitemoehybrid writes "auto" for the width that follows
    written = [name for name in names if config.has(name) and config.values[name] != "auto"]
    if written and config.size(*written) != width:
        raise CannotExpress(
            f"{heads:,} heads of {config.size(*written):,} are not its {channels:,} channels"
        )
    return {
        "heads": heads,
        "head_width": width,
        "state": state,
        "groups": groups,
        "conv": config.size("mamba_d_conv", "conv_kernel"),
    }
