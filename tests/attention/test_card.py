"""What a card says of options, forms and refusals before any module is built."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.attention.card import LARGEST, MIXED, Card, StackLayer, fits
from attnbench.attention.contract import Attention, BaseConfig
from attnbench.errors import UnknownOption
from attnbench.mechanisms import fnet, grouped_query, transformer
from attnbench.records import Causality, Level, Mode, Workload

W = Workload(batch=2, seq_len=8, width=16, heads=4, level=Level.ATTENTION)
DECODE = replace(W, mode=Mode.DECODE, causal=True)


@dataclass(frozen=True, kw_only=True)
class Config(BaseConfig):
    """Options of every kind that cards have."""

    rank: int = 3
    share: float = 0.5
    kind: str = "all"
    most: int | None = None

    def __post_init__(self):
        self.require_at_least(1, "rank", "most")
        self.require_one_of("kind", ("all", "none"))


class Alone(Attention):
    """A form without a core, of no package."""


def card(**changes):
    return replace(transformer.CARD, config=Config, forms={"eager": Alone}, **changes)


@given(st.integers(-(2 * LARGEST), 2 * LARGEST))
def test_a_number_is_an_option_below_what_a_tensor_can_hold(number):
    expected = abs(number) < LARGEST
    assert fits(number, int) is expected
    assert fits(number, float) is expected
    assert fits(float(number), float) is expected
    assert fits(number, int | None) is expected


@pytest.mark.parametrize(
    ("value", "declared", "found"),
    [
        (True, int, False),
        (1, bool, False),
        (1.0, int, False),
        (float("nan"), float, False),
        (None, int | None, True),
        (None, int, False),
        ("7", int, False),
        ("7", list, True),
    ],
)
def test_a_value_has_the_type_of_its_field(value, declared, found):
    assert fits(value, declared) is found


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rnak": 3}, "no option 'rnak'; options: bias, kind, most, rank, share"),
        ({"rank": 2.5}, "rank is 2.5; it takes int below 2,147,483,648"),
        ({"share": "x"}, "share is 'x'; it takes float"),
        ({"rank": 0}, "rank is 0; it must be at least 1"),
        ({"kind": "some"}, "unknown kind 'some'; known: all, none"),
        ({"causal": True}, "causal is set by --causal"),
    ],
)
def test_an_option_that_is_none_says_what_is_known(options, said):
    with pytest.raises(UnknownOption) as raised:
        card().configure(options)
    assert str(raised.value) == said


def test_options_are_those_that_are_not_the_defaults_in_order():
    found = card().configure({"share": 1, "kind": None, "rank": 3, "most": 7})
    assert found.kind == "none", "the word that a shell gives as nothing"
    assert card().options(found) == (("kind", "none"), ("most", 7), ("share", 1))


def refusal(own, form="eager", w=W):
    return own.refusal(form, own.config(), w)


@pytest.mark.parametrize(
    ("own", "w", "said"),
    [
        (transformer.CARD, replace(W, width=18), "width 18 is not divisible by 4 heads"),
        (fnet.CARD, replace(W, causal=True), "the mechanism has no causal form"),
        (card(), replace(W, level=Level.CORE), "has no core separate from its projections"),
        (fnet.CARD, replace(DECODE, causal=False), "cannot decode: "),
        (card(no_decode_reason="it sorts"), DECODE, "cannot decode: it sorts"),
        (card(), DECODE, "cannot decode: this form has no step of its own"),
        (grouped_query.CARD, replace(DECODE, level=Level.CORE), "at level attention"),
        (grouped_query.CARD, replace(DECODE, step=9), "9 tokens is longer than the context"),
        (grouped_query.CARD, replace(DECODE, padding=0.5), "without padding"),
    ],
)
def test_what_a_form_cannot_run_is_said_before_it_is_built(own, w, said):
    assert said in refusal(own, w=w)


def test_what_a_form_can_run_is_refused_nothing():
    assert refusal(grouped_query.CARD, w=DECODE) is None
    assert refusal(replace(fnet.CARD, causality=Causality.OPTIONAL), w=replace(W, causal=True)) is (
        None
    )
    assert refusal(card(needs=lambda config, w: f"N is {w.seq_len}")) == "N is 8"


def test_a_default_form_that_is_refused_gives_way_to_eager():
    class Never(Alone):
        @staticmethod
        def needs(config, w):
            return "never"

    both = replace(card(), forms={"eager": Alone, "other": Never}, default="other")
    assert both.default_form(both.config(), W) == "other"
    assert both.usual_form(both.config(), W) == "eager"
    by_length = replace(both, default=lambda config, w: "other" if w.seq_len > 8 else "eager")
    assert [by_length.default_form(Config(), replace(W, seq_len=n)) for n in (8, 9)] == [
        "eager",
        "other",
    ]


def test_exemptions_may_follow_from_options():
    own: Card = card(exempt=lambda config: {"rank": str(config.rank)})
    assert own.exemptions(Config(rank=7)) == {"rank": "7"}


def test_a_layer_of_a_stack_has_its_own_form_where_forms_are_mixed():
    named = StackLayer("transformer", "flex", transformer.CARD, transformer.CARD.config())
    usual = StackLayer("transformer", None, transformer.CARD, transformer.CARD.config(bias=True))
    assert named.series("eager", W) == "transformer:eager"
    assert named.series(MIXED, W) == "transformer:flex"
    assert usual.series(MIXED, W) == "transformer:sdpa[bias=True]"
