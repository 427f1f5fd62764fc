"""What fits on cards beside the weights, by hand."""

from attnbench.commands.model.requests import NEEDED, PAGES
from tests.commands.model.planned import GIB, planned
from tests.commands.model.test_parameters import GPT_OSS, LLAMA_8B, MIXTRAL, QWEN_7B


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
    assert not eight.copied_caches
    assert sixteen.copied_caches == ["each of 8 heads of keys and values on 2 cards"]
    assert sixteen.requests[0].bytes_on_card == eight.requests[0].bytes_on_card
    assert (
        planned(tmp_path, LLAMA_8B).requests[0].bytes_on_card[0]
        == 8 * (eight.requests[0].bytes_on_card[0])
    )


def test_heads_that_cards_cannot_divide_are_on_each(tmp_path):
    found = planned(tmp_path, QWEN_7B, cards=8)
    (text,) = found.copied_caches
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
