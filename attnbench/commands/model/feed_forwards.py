"""The feed-forward of each layer of a configuration, as it is measured beside attention.

Sizes are those of which `attnbench bytes` counts the weights. A family that is not known here, and
a feed-forward that does more than the modules here, is not measured, and the reason is said.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from attnbench.commands.model import orders
from attnbench.commands.model.configuration import ConfigurationFields
from attnbench.commands.model.families import FAMILIES, QWEN_SHARED, Experts, ModelFamily, is_set
from attnbench.commands.model.feed_weights import after_mixer
from attnbench.commands.model.weights import EXPERTS, FEED_FORWARD
from attnbench.errors import UsageError
from attnbench.records import Option, Selection

ALONE = (orders.MOE, orders.MLP)  # layers of nothing else
WITHOUT = ("mamba", "mamba2", "falcon_mamba")
# types whose weights nobody counted, and whose feed-forwards are those of others
FURTHER: Mapping[str, ModelFamily] = MappingProxyType(
    {
        "bamba": ModelFamily(feed_bias=("mlp_bias", False)),
        "chatglm": ModelFamily(dense_width="ffn_hidden_size"),
        "falcon_h1": ModelFamily(feed_bias=("mlp_bias", False)),
        "glm": ModelFamily(),
        "gpt2": ModelFamily(matrices=2, feed_bias=True, dense_width="n_inner"),
        "gpt_neox": ModelFamily(matrices=2, feed_bias=True),
        "qwen2_moe": ModelFamily(experts=QWEN_SHARED),
    }
)
FOUR_WIDE = ("gpt2",)  # where the file does not say how wide
# what these do besides, which no module here does
MORE = MappingProxyType(
    {
        "bitnet": "it has a norm inside",
        "deepseek_v4": "it stands between several streams, and its experts clamp their products",
        "gemma3n_text": "it stands between several streams and keeps few of its numbers",
    }
)
ACTIVATION_FIELDS = (
    *("hidden_activation", "mlp_hidden_act", "activation_function", "hidden_act", "activation"),
)
NAMED = MappingProxyType(
    {
        "silu": "silu",
        "swish": "silu",
        "gelu": "gelu",
        "gelu_new": "gelu_tanh",
        "gelu_fast": "gelu_tanh",
        "gelu_pytorch_tanh": "gelu_tanh",
        "quick_gelu": "quick_gelu",
        "relu": "relu",
        "relu2": "relu2",
    }
)
# as transformers fills them in for types whose files need not name one; of others silu
USUAL = MappingProxyType(
    {
        "apertus": "xielu",
        "arcee": "relu2",
        "gemma": "gelu_pytorch_tanh",
        "gemma2": "gelu_pytorch_tanh",
        "gemma3_text": "gelu_pytorch_tanh",
        "gemma4_text": "gelu_pytorch_tanh",
        "gpt2": "gelu_new",
        "gpt_neox": "gelu",
        "nemotron": "relu2",
        "nemotron_h": "relu2",
        "starcoder2": "gelu_pytorch_tanh",
    }
)
CLAMPED = ("gpt_oss",)  # whatever the file says


class CannotExpress(Exception):
    """Nothing here computes a part of a layer at its sizes; the message says why."""


class FeedForward(NamedTuple):
    """What stands after the mixer of a layer: in words, and as `--models` has it."""

    words: str
    mechanism: str


def feed_forward(config: ConfigurationFields, kind: str, index: int) -> FeedForward | None:
    """That of a layer with these fields; None for a layer without one. Raises `CannotExpress`."""
    if config.type in WITHOUT or (config.type == "nemotron_h" and kind not in ALONE):
        return None
    family = FAMILIES.get(config.type) or FURTHER.get(config.type)
    if family is None:
        raise CannotExpress(f"the feed-forwards of model type {config.type!r} are not known here")
    if reason := _unknown_part(config):
        raise CannotExpress(reason)
    try:
        return _sized_feed_forward(_with_computed_fields(config), family, kind, index)
    except UsageError as error:
        raise CannotExpress(str(error).removeprefix(f"{config.file!r}: ")) from error


def _unknown_part(config: ConfigurationFields) -> str:
    """What a feed-forward does besides, or nothing."""
    if config.type == "gemma4_text" and config.values.get("hidden_size_per_layer_input"):
        return "it is followed by maps of a further embedding"
    if config.type == "gemma4_text" and config.values.get("enable_moe_block"):
        return "it stands beside experts"
    if config.type == "nemotron_h" and config.values.get("moe_latent_size"):
        return "its experts are between maps to and from a narrower width"
    return MORE.get(config.type, "")


def _with_computed_fields(config: ConfigurationFields) -> ConfigurationFields:
    """The fields with those that transformers computes from others."""
    if config.type not in FOUR_WIDE or config.has("n_inner"):
        return config
    values = {**config.values, "n_inner": 4 * config.size("hidden_size")}
    return ConfigurationFields(config.file, values)


def _sized_feed_forward(
    config: ConfigurationFields, family: ModelFamily, kind: str, index: int
) -> FeedForward | None:
    """The feed-forward whose weights are counted. Raises `UsageError` and `CannotExpress`."""
    parts = [weights for weights in after_mixer(config, family, kind, index) if weights.rows]
    if not parts:
        return None
    wide = next((weights.units for weights in parts if weights.part == FEED_FORWARD), 0)
    gate = family.matrices == 3
    activation = _activation(config)
    gated = f"{'gated ' if gate else ''}{activation}"
    options: dict[str, Option] = {"gate": gate, "activation": activation}
    if family.experts is None or all(weights.part != EXPERTS for weights in parts):
        bias = is_set(config, family.feed_bias)
        words = f"feed-forward {wide:,}, {gated}"
        options |= {"inner": wide, "bias": bias}
        return FeedForward(words, _selection("feed_forward", options))
    options |= _experts(config, family.experts) | {"shared": wide}
    if family.experts.bias != is_set(config, family.feed_bias) and wide:
        raise CannotExpress("only some of its experts have a bias")
    words = f"experts {options['used']} of {options['number']} × {options['inner']:,}, {gated}"
    if wide:
        words += f"; shared {wide:,}"
    return FeedForward(words, _selection("experts", options))


def _experts(config: ConfigurationFields, experts: Experts) -> dict[str, Option]:
    """The sizes of experts, and whether they have biases."""
    return {
        "number": config.size(*experts.number),
        "used": config.size(*experts.used),
        "inner": config.size(experts.width),
        "bias": experts.bias,
        "shared_gate": experts.shared_gate,
    }


def _activation(config: ConfigurationFields) -> str:
    """The activation by its name in the modules here. Raises `CannotExpress`."""
    if config.type in CLAMPED:
        return "clamped"
    name = next(filter(config.has, ACTIVATION_FIELDS), None)
    written = config.values[name] if name else USUAL.get(config.type, "silu")
    if not isinstance(written, str) or written not in NAMED:
        raise CannotExpress(f"no module here has the activation {written!r}")
    return NAMED[written]


def _selection(name: str, options: Mapping[str, Option]) -> str:
    """As `--models` has it, without what is not there."""
    defaults = {"gate": True, "activation": "silu"}
    differing = {
        key: value
        for key, value in options.items()
        if (value != defaults[key] if key in defaults else value)
    }
    return str(Selection(name=name, options=tuple(sorted(differing.items()))))
