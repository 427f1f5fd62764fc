"""What fits on cards beside the weights, by hand; and how caches divide among cards."""

import json
from fractions import Fraction

import pytest

from attnbench.commands.model.cards import card_layers
from attnbench.commands.model.configuration import fields
from attnbench.commands.model.configured_layers import model
from attnbench.commands.model.context import ContextQuery
from attnbench.commands.model.plan import card_plan
from attnbench.commands.model.requests import NEEDED, PAGES
from attnbench.commands.model.sizing import WeightOption, weight_bytes_on, weight_option
from attnbench.commands.model.weights import EXPERTS, Weights
from attnbench.errors import UsageError
from tests.commands.model.test_layers import FAMILIES, SMALL
from tests.commands.model.test_weights import GPT_OSS, LLAMA_8B, MIXTRAL, QWEN_7B

GIB = 1 << 30


def written(tmp_path, values):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(values))
    return file


def planned(tmp_path, values, *lengths, cards=1, memory=80 * GIB, weights=None, files=None):
    query = ContextQuery(lengths=lengths or (32 << 10,), item_bytes=2, memory=memory)
    config = fields(written(tmp_path, values))
    return card_plan(config, query, cards, weight_option(weights), files)


def test_requests_fill_what_the_weights_leave(tmp_path):
    found = planned(tmp_path, LLAMA_8B, 32 << 10, 128 << 10)
    assert found.weights.total == 2 * 8_030_261_248
    left = 80 * GIB - 2 * 8_030_261_248
    one = 32 * 2 * 8 * 128 * 2  # bytes of a token
    needed, halved = found.requests
    assert needed.caches == NEEDED
    assert needed.bytes_on_card == (one << 15, one << 17)
    assert needed.requests == (left // (one << 15), left // (one << 17)) == (16, 4)
    assert halved.requests == (32, 8)


def test_heads_fewer_than_cards_are_copied_and_said(tmp_path):
    eight = planned(tmp_path, LLAMA_8B, cards=8)
    sixteen = planned(tmp_path, LLAMA_8B, cards=16)
    assert not eight.copied
    assert sixteen.copied == ["each of 8 heads of keys and values on 2 cards"]
    assert sixteen.requests[0].bytes_on_card == eight.requests[0].bytes_on_card
    assert (
        planned(tmp_path, LLAMA_8B).requests[0].bytes_on_card[0]
        == 8 * (eight.requests[0].bytes_on_card[0])
    )


def test_heads_that_cards_cannot_divide_are_on_each(tmp_path):
    found = planned(tmp_path, QWEN_7B, cards=8)
    (text,) = found.copied
    assert text.startswith("4 heads of keys and values on each card, as are the 28 heads")
    alone = planned(tmp_path, QWEN_7B)
    assert found.requests[0].bytes_on_card == alone.requests[0].bytes_on_card
    assert any("28 heads of weights of attention, which 8 cards" in x for x in found.copied_weights)


def test_windows_with_full_pages_have_a_row(tmp_path):
    found = planned(tmp_path, GPT_OSS, cards=2, weights="4.25")
    rows = {row.caches: row.bytes_on_card[0] for row in found.requests}
    token = 2 * 4 * 64 * 2  # bytes of a layer on one of two cards
    assert rows[NEEDED] == 18 * token * (32_768 + 127)
    assert rows[PAGES] == 36 * token * 32_768
    assert PAGES not in {row.caches for row in planned(tmp_path, LLAMA_8B).requests}


def test_weights_that_do_not_fit_leave_room_for_none_and_more_cards_are_named(tmp_path):
    found = planned(tmp_path, MIXTRAL)
    assert {count for row in found.requests for count in row.requests} == {0}
    assert found.fewest == 2
    assert max(planned(tmp_path, MIXTRAL, cards=2).requests[0].requests) > 0


def test_what_quantized_weights_need_is_not_guessed(tmp_path):
    found = planned(tmp_path, GPT_OSS)
    assert found.weights.total is None
    assert not found.requests
    assert found.parameters == 116_829_156_672
    said = planned(tmp_path, GPT_OSS, weights="60GiB")
    assert said.weights.total == 60 * GIB
    assert planned(tmp_path, GPT_OSS, files=5 * GIB).weights.total == 5 * GIB


def test_bytes_are_those_of_the_option_then_of_files_then_counted():
    weights = [Weights(EXPERTS, 1000, units=10, rows=True), Weights(EXPERTS, 200)]

    def found(text, files, bits=Fraction(16)):
        return weight_bytes_on(4, weights, weight_option(text), files, bits)

    assert found(None, None)[:2] == (2400, 2 * (300 + 200))
    assert found("8", 9_600)[:2] == (1200, 500)
    assert found(None, 9_600)[:2] == (9_600, 4_000)
    assert found("1k", 9_600).total == 1024
    assert found("4.5", None).total == 675
    assert found(None, None, None)[:2] == (None, None)
    assert weight_bytes_on(4, [], WeightOption(), 100, None)[:2] == (100, 25)


@pytest.mark.parametrize("text", ["80", "0", "8bit", "-8", "65", "1/2", ""])
def test_a_size_of_weights_that_cannot_be_read_is_refused(text):
    with pytest.raises(UsageError, match="is neither bits of a number up to 64 nor a size"):
        weight_option(text)


def test_bits_need_a_count_of_parameters(tmp_path):
    with pytest.raises(UsageError, match=r"'vocab_size' is missing.*--weights 60GiB"):
        planned(tmp_path, LLAMA_8B | {"vocab_size": None}, weights="8")


# whose caches each card is said to keep whole
UNDIVIDED = ("falcon_h1", "zamba2", "zaya", "minimax_m3_vl_text")


@pytest.mark.parametrize("kind", FAMILIES)
def test_each_family_knows_how_its_caches_divide(kind, tmp_path):
    """One card keeps all; two keep no more each, and no less together."""
    file = written(tmp_path, {**SMALL, **FAMILIES[kind], "model_type": kind})
    whole = model(file).layers
    config = fields(file)
    assert [one.layer for one in card_layers(config, 1)] == list(whole)
    for layer, half in zip(whole, card_layers(config, 2), strict=True):
        undivided = any(text.startswith("what a layer") for text in half.copied)
        assert not undivided or kind in UNDIVIDED
        for part, own in zip(layer.parts, half.layer.parts, strict=True):
            assert own.numbers <= part.numbers <= 2 * own.numbers
            assert half.copied or 2 * own.numbers == part.numbers


def test_what_of_a_model_is_not_counted_is_said(tmp_path):
    nested = {"model_type": "llava", "tie_word_embeddings": True, "text_config": LLAMA_8B}
    found = planned(tmp_path, nested)
    assert found.remarks == ("Only the text model is counted, no encoders of images or sounds.",)
    assert found.parameters == 8_030_261_248 - 128_256 * 4_096
    ahead = planned(tmp_path, LLAMA_8B | {"num_nextn_predict_layers": 1})
    assert "'num_nextn_predict_layers'" in ahead.remarks[0]
    silent = planned(tmp_path, {**LLAMA_8B, "dtype": None, "torch_dtype": None})
    assert silent.remarks == ("The file names no number type: bfloat16 is taken.",)
    assert silent.weights.total == 2 * 8_030_261_248
