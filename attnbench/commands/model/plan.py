"""The plan of a model on cards: its weights, what fits beside them, and what is not counted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from attnbench.commands.model.cards import CardLayer, card_layers
from attnbench.commands.model.configuration import ConfigurationFields
from attnbench.commands.model.context import BytesRow, ContextQuery, rows
from attnbench.commands.model.parameters import parameters
from attnbench.commands.model.requests import RequestsRow, fewest_cards, requests
from attnbench.commands.model.sizing import WeightBytes, WeightOption, size_of, weight_bytes_on
from attnbench.commands.model.weights import Weights, copied_text
from attnbench.errors import UsageError
from attnbench.records import ITEM_BYTES, units

QUANTIZED = ("quantization_config", "quantization")
AHEAD = (
    *("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "num_mtp_modules"),
)


@dataclass(frozen=True, kw_only=True)
class CardPlan:
    """A model on cards that share it by tensor parallelism.

    cards: how many.
    memory: of each card, None without a limit.
    counted: the parameters, nothing where they are not counted.
    reason: why they are not.
    weights: their bytes.
    bits_given: whether the user said how wide each is.
    layers: each as the fullest card keeps it.
    requests: how many fit, nothing where that is not known.
    fewest: cards on which the shortest request fits, None where that is not asked or not known.
    remarks: what of the model is not counted, or counted otherwise than one may expect.
    cache_remarks: number types of caches that the file names and that are not counted by.
    """

    cards: int
    memory: int | None
    counted: tuple[Weights, ...]
    reason: str
    weights: WeightBytes
    bits_given: bool
    layers: list[CardLayer]
    requests: list[RequestsRow]
    fewest: int | None
    remarks: tuple[str, ...]
    cache_remarks: tuple[str, ...]

    @property
    def parameters(self) -> int:
        """All parameters, 0 where they are not counted."""
        return sum(one.numbers for one in self.counted)

    @property
    def active_parameters(self) -> int:
        """The parameters that one token passes through."""
        return sum(one.active for one in self.counted)

    @property
    def copied_caches(self) -> list[str]:
        """In words what of the caches several cards keep."""
        return list(dict.fromkeys(text for layer in self.layers for text in layer.copied))

    @property
    def copied_weights(self) -> list[str]:
        """In words which heads of the weights several cards hold."""
        texts = [
            copied_text(
                weights.units,
                f"heads of weights of {weights.part}",
                self.cards,
                rows=weights.rows,
                readers=weights.readers,
            )
            for weights in self.counted
            if weights.units > 1
        ]
        return list(dict.fromkeys(filter(None, texts)))


def card_plan(
    config: ConfigurationFields,
    query: ContextQuery,
    cards: int,
    option: WeightOption,
    files: int | None,
) -> CardPlan:
    """What a model needs on each of so many cards.

    config: the fields of the model.
    query: lengths, bytes of a cached number, and the memory of each card.
    cards: that share the model.
    option: what the user says of the weights.
    files: bytes of the weights beside the configuration, None without one.
    """
    counted, reason = counted_parameters(config)
    remarks = []
    if files is not None and 8 * files < sum(one.numbers for one in counted):
        remarks.append(
            f"The files of weights beside it have {units.size(files)}, less than a bit for each"
            " parameter, so they are not all there and do not count."
        )
        files = None
    if option.bits is not None and not counted:
        raise UsageError(
            f"--weights: bits of a number need a count of parameters, and {reason}; write the"
            " bytes of all weights, as in --weights 60GiB"
        )
    bits = written_bits(config)

    def weights_on(many: int) -> WeightBytes:
        return weight_bytes_on(many, counted, option, files, bits)

    weights = weights_on(cards)
    on_cards = card_layers(config, cards)
    fitting: list[RequestsRow] = []
    fewest = None
    if query.memory is not None and weights.on_card is not None:
        fitting = requests(on_cards, query, weights.on_card)
        if not max(fitting[0].requests):
            fewest = fewest_cards(config, query, lambda many: weights_on(many).on_card)
    return CardPlan(
        cards=cards,
        memory=query.memory,
        counted=counted,
        reason=reason,
        weights=weights,
        bits_given=option.bits is not None,
        layers=on_cards,
        requests=fitting,
        fewest=fewest,
        remarks=(*remarks, *_remarks(config)),
        cache_remarks=tuple(_cache_remarks(config)),
    )


def counted_parameters(config: ConfigurationFields) -> tuple[tuple[Weights, ...], str]:
    """The parameters of a model, or nothing and why they cannot be counted."""
    try:
        return parameters(config), ""
    except UsageError as error:
        return (), str(error).removeprefix(f"{config.file!r}: ")


def written_bits(config: ConfigurationFields) -> Fraction | None:
    """The bits of a parameter by a configuration, those of bfloat16 if it names no number type.

    None if it is quantized, or names a type of another width than those of `ITEM_BYTES`.
    """
    dtype = config.dtype or "bfloat16"
    if any(map(config.values.get, QUANTIZED)) or dtype not in ITEM_BYTES:
        return None
    return Fraction(8 * ITEM_BYTES[dtype])


def with_longest(
    plan: CardPlan, model_rows: Sequence[BytesRow], query: ContextQuery
) -> list[BytesRow]:
    """Rows of the context of a whole model, with the longest that fits on its cards."""
    on_card = rows(
        [layer.layer for layer in plan.layers], replace(query, weights=plan.weights.on_card)
    )
    return [
        row._replace(longest=card.longest) for row, card in zip(model_rows, on_card, strict=True)
    ]


def plan_data(plan: CardPlan) -> dict[str, Any]:
    """The plan as JSON has it: all numbers of its tables, and their notes."""
    weights = plan.weights
    return {
        "gpus": plan.cards,
        "weights_from": weights.source if weights.total is not None else None,
        "weight_bits": float(weights.bits) if weights.bits is not None else None,
        "weights_on_card": weights.on_card,
        "parameters": plan.parameters or None,
        "active_parameters": plan.active_parameters or None,
        "parameters_not_counted": plan.reason or None,
        "parts": [
            _part_data(plan, part) for part in dict.fromkeys(one.part for one in plan.counted)
        ],
        "requests": [row._asdict() for row in plan.requests],
        "fewest_gpus": plan.fewest,
        "copied_caches": plan.copied_caches,
        "copied_weights": plan.copied_weights,
        "remarks": [*plan.remarks, *plan.cache_remarks],
    }


def _part_data(plan: CardPlan, part: str) -> dict[str, Any]:
    """The numbers of one part of the weights."""
    alike = [weights for weights in plan.counted if weights.part == part]
    bits = plan.weights.bits
    numbers = sum(weights.numbers for weights in alike)
    on_card = sum((weights.on_card(plan.cards) for weights in alike), Fraction(0))
    return {
        "part": part,
        "parameters": numbers,
        "active": sum(weights.active for weights in alike),
        "bytes": size_of(numbers, bits) if bits is not None else None,
        "bytes_on_card": size_of(on_card, bits) if bits is not None else None,
    }


def _remarks(config: ConfigurationFields) -> Iterator[str]:
    if not config.dtype:
        yield "The file names no number type: bfloat16 is taken."
    if config.text_only:
        yield "Only the model of text is counted, no other part, as encoders of images or sounds."
    ahead = next((name for name in AHEAD if config.values.get(name)), None)
    if ahead is not None:
        yield f"Layers that predict further tokens ('{ahead}') are not counted."


CACHE_TYPES = ("kv_cache_dtype", "kv_cache_scheme", "cache_dtype", "kv_cache_quant_algo")
STATE_TYPES = ("mamba_ssm_cache_dtype", "mamba_ssm_dtype")


def _cache_remarks(config: ConfigurationFields) -> Iterator[str]:
    """What the file says of the number types of caches, which follow from options of an engine."""
    quantized = [config.values.get(name) for name in QUANTIZED]
    places = [config.values, *(place for place in quantized if isinstance(place, dict))]
    for name in CACHE_TYPES:
        if any(place.get(name) not in (None, "auto", config.dtype) for place in places):
            yield (
                f"The file names a number type of caches ({name!r}); what is shown is in"
                f" {config.dtype or 'bfloat16'}."
            )
    for name in STATE_TYPES:
        if config.values.get(name) not in (None, "auto", "float32"):
            yield f"States are counted in float32, and {name!r} is {config.values[name]!r}."
