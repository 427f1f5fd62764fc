"""The parameters of a model by part, from its configuration and its family.

What cannot be counted is refused by name. Equal to the classes of transformers, whose buffers are
no parameters.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from attnbench.commands.model.configuration import ConfigurationFields
from attnbench.commands.model.configured_layers import layers_with_fields
from attnbench.commands.model.families import FAMILIES, ModelFamily, is_set
from attnbench.commands.model.feed_weights import after_mixer
from attnbench.commands.model.mixer_weights import mixer
from attnbench.commands.model.weights import (
    EMBEDDING,
    EXPERTS,
    FEED_FORWARD,
    HEAD,
    NORMS,
    PARTS,
    Weights,
)

# fields of weights that are in no family here
UNREAD = (
    *("linear_use_full_rank_gate", "mla_use_output_gate", "use_head_wise_attn_gate"),
    *("add_cross_attention", "attention_output_gate", "qkv_bias", "bias", "draft_vocab_size"),
)
# fields of weights whose absence means another size than none, by the types in which it does
NEEDED: Mapping[str, Collection[str]] = MappingProxyType(
    {
        "hidden_size_per_layer_input": ("gemma3n_text", "gemma4_text"),
        "tie_word_embeddings": ("qwen3_vl_moe_text",),
    }
)
# of models that are used without the head of their output
HEADLESS = re.compile("(?<!LMHead)Model$")
OTHER_HEAD = re.compile("Classification$|QuestionAnswering$|RewardModel$")


def parameters(config: ConfigurationFields) -> tuple[Weights, ...]:
    """All parameters of a model. Raises `UsageError` where they cannot be counted."""
    family = FAMILIES.get(config.type)
    if family is None:
        raise config.error(f"the weights of model type {config.type!r} are not known here")
    for name, types in NEEDED.items():
        if config.type in types:
            config.require(name)
    if other_head := next(filter(OTHER_HEAD.search, _classes(config)), None):
        raise config.error(f"the head of {other_head!r} is not counted here")
    read_field = family.input_bias[0] if isinstance(family.input_bias, tuple) else ""
    for name in UNREAD:
        if config.values.get(name) and name != read_field:
            raise config.error(f"{name!r} may change weights and is not read here")
    return tuple(_merge(_weights(config, family)))


def _classes(config: ConfigurationFields) -> list[str]:
    """The classes that a file of a text model is of; none for the text part of another model."""
    classes = [] if config.text_only else config.values.get("architectures")
    return [one for one in classes if isinstance(one, str)] if isinstance(classes, list) else []


def _merge(entries: Iterable[Weights]) -> Iterator[Weights]:
    """The same with one entry for all that are divided alike, in the order of `PARTS`."""
    sums: dict[Weights, tuple[int, int]] = {}
    for weights in entries:
        key = weights._replace(numbers=0, used=None)
        numbers, active = sums.get(key, (0, 0))
        sums[key] = (numbers + weights.numbers, active + weights.active)
    for key in sorted(sums, key=lambda key: PARTS.index(key.part)):
        numbers, active = sums[key]
        if numbers:
            yield key._replace(numbers=numbers, used=None if active == numbers else active)


def _weights(config: ConfigurationFields, family: ModelFamily) -> Iterator[Weights]:
    width = config.size("hidden_size")
    words = config.size("vocab_size", most=1 << 24)
    yield Weights(EMBEDDING, words * width, words, rows=True)
    norms = bool(family.norms) + family.embedding_norm
    yield Weights(NORMS, width * family.norm_size * norms)
    if family.positions:
        yield Weights(EMBEDDING, config.size(family.positions) * width)
    headless = any(map(HEADLESS.search, _classes(config)))
    if not headless and not is_set(config, family.tied):
        yield Weights(HEAD, words * width, words, rows=True)
    if not headless and is_set(config, family.head_bias):
        yield Weights(HEAD, words, words, rows=True)
    parallel = config.type == "stablelm" and is_set(config, ("use_parallel_residual", False))
    of_layer = family.norms - parallel  # one norm is before both halves of a layer
    for index, (kind, layer, layer_fields) in enumerate(layers_with_fields(config)):
        yield from mixer(layer_fields, family, kind, layer)
        yield from after_mixer(layer_fields, family, kind, index)
        yield Weights(NORMS, of_layer * family.norm_size * width)
    if config.type in ("gemma3n_text", "gemma4_text"):
        yield from _gemma(config)
    if config.type == "deepseek_v4":
        yield from _several_streams(config)


def _gemma(config: ConfigurationFields) -> Iterator[Weights]:
    """Inputs of each layer from a further embedding, and what is added only in Gemma 3n and 4."""
    model = config.size("hidden_size")
    layers = config.layers
    narrow = config.size("hidden_size_per_layer_input", least=0, default=0)
    if narrow:
        words = config.size("vocab_size_per_layer_input", most=1 << 24)
        yield Weights(EMBEDDING, words * layers * narrow, words, rows=True)
        yield Weights(FEED_FORWARD, model * layers * narrow + layers * 2 * narrow * model)
        yield Weights(NORMS, narrow + layers * model)
    if config.type == "gemma4_text":
        if is_set(config, ("enable_moe_block", False)):
            yield from _gemma_experts(config)
        return
    rank = config.size("laurel_rank")
    inputs = config.size("altup_num_inputs")
    altup = inputs * inputs + inputs**3 + model
    yield Weights(FEED_FORWARD, layers * (2 * rank * model + altup))
    yield Weights(NORMS, layers * (2 + inputs) * model)
    yield Weights(FEED_FORWARD, 2 * (inputs - 1) * model * model)


def _gemma_experts(config: ConfigurationFields) -> Iterator[Weights]:
    """Experts beside the feed-forward of each layer."""
    model = config.size("hidden_size")
    number = config.size("num_experts")
    width = config.size("moe_intermediate_size")
    used = config.size("top_k_experts")
    expert = 3 * model * width
    layers = config.layers
    yield Weights(EXPERTS, layers * number * expert, width, rows=True, used=layers * used * expert)
    yield Weights(NORMS, layers * (number * model + model + number + 3 * model))


def _several_streams(config: ConfigurationFields) -> Iterator[Weights]:
    """The mixing of several residual streams, twice in a layer and once before the head."""
    streams = config.size("hc_mult")
    inputs = streams * config.size("hidden_size")
    mixed = (2 + streams) * streams
    yield Weights(NORMS, 2 * config.layers * (mixed * (inputs + 1) + 3))
    yield Weights(NORMS, streams * (inputs + 1) + 1)
