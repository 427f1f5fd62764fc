"""The weights of a layer after its mixer: a feed-forward or experts."""

from collections.abc import Iterator
from math import ceil

from attnbench.commands.model import orders
from attnbench.commands.model.configuration import ConfigurationFields
from attnbench.commands.model.families import Experts, ModelFamily, is_set
from attnbench.commands.model.weights import EXPERTS, FEED_FORWARD, NORMS, Weights

# fields of the width of a feed-forward that is four times the model's without them
FOUR_TIMES = ("", "n_inner")


def after_mixer(
    config: ConfigurationFields, family: ModelFamily, kind: str, index: int
) -> Iterator[Weights]:
    """The feed-forward or the experts of a layer."""
    experts = family.experts
    if kind in (orders.MOE, orders.MLP) or config.type == "nemotron_h":
        sparse_by_kind = {orders.MOE: True, orders.MLP: False}.get(kind)
        if sparse_by_kind is None:
            return
        sparse = sparse_by_kind
    elif config.type in ("falcon_mamba", "mamba", "mamba2"):
        return
    else:
        sparse = experts is not None and experts.sparse(config, kind, index)
    if sparse and experts is not None:
        yield from _experts(config, family, experts)
        return
    if experts is not None and config.type == "granitemoehybrid":
        width = config.size("shared_intermediate_size")
    else:
        width = _dense_width(config, family, index)
    yield from _feed_forward(config, family, width)


def _dense_width(config: ConfigurationFields, family: ModelFamily, index: int) -> int:
    name = family.dense_width
    if name in FOUR_TIMES and not config.has(name):
        return 4 * config.size("hidden_size")
    if isinstance(config.values.get(name), list):
        config = ConfigurationFields(config.file, {name: config.list_of(name)[index]})
        return config.size(name)
    width = config.size(name)
    if config.type == "lfm2" and is_set(config, ("block_auto_adjust_ff_dim", True)):
        factor = config.values.get("block_ffn_dim_multiplier", 1.0)
        if not isinstance(factor, int | float):
            raise config.error(f"'block_ffn_dim_multiplier' is {factor!r}; write a number")
        multiple = config.size("block_multiple_of", default=256)
        width = multiple * ceil(int(factor * (2 * width // 3)) / multiple)
    shared = config.size("num_kv_shared_layers", least=0, default=0)
    doubled = config.values.get("use_double_wide_mlp") is True
    if doubled and shared and index >= config.layers - shared > 0:
        width *= 2
    return width


def _feed_forward(
    config: ConfigurationFields, family: ModelFamily, width: int
) -> Iterator[Weights]:
    model = config.size("hidden_size")
    bias = is_set(config, family.feed_bias)
    up = family.matrices - 1
    yield Weights(FEED_FORWARD, width * (family.matrices * model + up * bias), width, rows=True)
    yield Weights(FEED_FORWARD, model * bias)
    if config.type == "bitnet":
        yield Weights(FEED_FORWARD, width, width, rows=True)
    if config.type == "apertus" and config.values.get("hidden_act", "xielu") == "xielu":
        yield Weights(FEED_FORWARD, 2)


def _experts(
    config: ConfigurationFields, family: ModelFamily, experts: Experts
) -> Iterator[Weights]:
    model = config.size("hidden_size")
    number = config.size(*experts.number)
    used = config.size(*experts.used)
    width = config.size(experts.width)
    latent = config.size("moe_latent_size", default=0) if config.type == "nemotron_h" else 0
    inner = latent or model
    if used > number:
        raise config.error(f"{used} experts of a token are more than the {number} of a layer")
    of_width = family.matrices * inner + (family.matrices - 1) * experts.bias
    expert = width * of_width
    yield Weights(EXPERTS, number * expert, width, rows=True, used=used * expert)
    if experts.bias:
        yield Weights(EXPERTS, number * inner, used=used * inner)
    yield Weights(NORMS, number * (model + experts.bias + experts.correction))
    if latent:
        bias = is_set(config, family.feed_bias)
        yield Weights(FEED_FORWARD, 2 * latent * model + bias * (latent + model))
    shared = experts.shared(config) if experts.shared is not None else 0
    if shared:
        yield from _feed_forward(config, family, shared)
        yield Weights(NORMS, model * experts.shared_gate)
