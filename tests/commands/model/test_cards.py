"""What each of several cards keeps of the context."""

import pytest

from attnbench.commands.model.cards import card_layers
from attnbench.commands.model.configuration import fields
from attnbench.commands.model.configured_layers import model
from attnbench.commands.model.context import CachePart
from tests.commands.model.planned import written
from tests.commands.model.test_configured_layers import FAMILIES, SMALL


@pytest.mark.parametrize("kind", FAMILIES)
def test_each_family_knows_how_its_caches_divide(kind, tmp_path):
    """One card keeps all; two keep no more each, and no less together."""
    file = written(tmp_path, {**SMALL, **FAMILIES[kind], "model_type": kind})
    whole = model(file).layers
    config = fields(file)
    assert [one.layer for one in card_layers(config, 1)] == list(whole)
    for layer, half in zip(whole, card_layers(config, 2), strict=True):
        assert not any(text.startswith("what a layer") for text in half.copied)
        for part, own in zip(layer.parts, half.layer.parts, strict=True):
            assert own.numbers <= part.numbers <= 2 * own.numbers
            assert half.copied or 2 * own.numbers == part.numbers


FALCON_H1 = {**SMALL, **FAMILIES["falcon_h1"], "model_type": "falcon_h1"}


@pytest.mark.parametrize(
    ("cards", "kv_heads", "heads", "groups", "said"),
    [
        (2, 1, 4, 1, []),
        (4, 1, 2, 1, ["keys and values on 2 cards", "groups of heads of states on 2 cards"]),
        (8, 1, 1, 1, ["keys and values on 4 cards", "groups of heads of states on 4 cards"]),
        (3, 2, 8, 2, ["2 heads of keys", "8 heads of states", "2 groups of heads of states"]),
    ],
)
def test_a_layer_with_attention_and_a_state_divides_both(
    cards, kv_heads, heads, groups, said, tmp_path
):
    """4 heads read the 2 of keys and values; 8 heads of a state read 2 groups."""
    (first, *_) = card_layers(fields(written(tmp_path, FALCON_H1)), cards)
    attention, state, convolved = first.layer.parts
    assert attention.numbers == 2 * kv_heads * 16
    assert state.numbers == heads * 16 * 8
    assert convolved.numbers == heads * 16 + 2 * groups * 8
    assert len(first.copied) == len(said)
    assert all(any(one in text for text in first.copied) for one in said)


def test_a_window_beside_a_state_has_full_pages_and_the_state_stays(tmp_path):
    values = {**SMALL, **FAMILIES["zaya"], "model_type": "zaya"}
    found = card_layers(fields(written(tmp_path, values)), 2)[1]
    windowed, *rest = found.layer.parts
    paged, *same = found.pages.parts
    assert (windowed.max_entries, paged.max_entries) == (7, CachePart(0).max_entries)
    assert paged.numbers == windowed.numbers == 2 * 1 * 16
    assert same == rest
    assert found.copied == (
        "inputs of convolutions of queries and keys on each card",
        "values of the last token on each card",
    )
