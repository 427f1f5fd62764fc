"""Tables of a model's context, weights and requests: what is said beside their numbers."""

from attnbench.commands.model.configured_layers import model
from attnbench.commands.model.context import ContextQuery, rows
from attnbench.commands.model.plan import with_longest
from attnbench.commands.model.table import context_table, requests_table, weights_table
from tests.commands.model.planned import GIB, planned, written
from tests.commands.model.test_parameters import GPT_OSS, LLAMA_8B, MIXTRAL, QWEN_7B

LENGTHS = (32 << 10, 128 << 10)


def context(tmp_path, values, memory=None, **how):
    """The table of the context of a model."""
    plan = planned(tmp_path, values, *LENGTHS, memory=memory, **how)
    query = ContextQuery(lengths=LENGTHS, item_bytes=2, memory=memory, weights=plan.weights.total)
    whole = rows(model(written(tmp_path, values)).layers, query)
    return context_table(with_longest(plan, whole, query), query, plan, "a model")


def cells(table):
    """The texts of each row, by the text of its first cell."""
    return {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}


def test_the_context_has_a_row_for_each_kind_and_a_column_for_each_length(tmp_path):
    table = context(tmp_path, LLAMA_8B)
    assert table.columns == ("Kind of layer", "Layers", "Per token", "32K", "128K")
    assert cells(table)["full, 8 × 128"] == ["32", "131,072 B", "4.000 GiB", "16.00 GiB"]
    said = "Full attention in each layer would need 1.00× at 32K, 1.00× at 128K."
    assert table.note == said, "and the weights have a row"


def test_the_longest_context_is_beside_the_weights(tmp_path):
    table = context(tmp_path, LLAMA_8B, memory=80 * GIB)
    assert table.columns[-1] == "Longest in 80 GiB"
    assert cells(table)["full, 8 × 128"][-1] == "–", "no single kind has all the memory"
    assert cells(table)["all layers"][-1] == f"{(80 * GIB - 2 * 8_030_261_248) // 131_072:,}"
    assert table.note.endswith(" The memory holds the weights too.")
    cards = context(tmp_path, LLAMA_8B, memory=80 * GIB, cards=8)
    assert cards.columns[-1] == "Longest in 8 × 80 GiB"


def test_windows_are_compared_with_full_attention_in_each_layer(tmp_path):
    table = context(tmp_path, GPT_OSS)
    assert table.note.startswith("Full attention in each layer would need 1.9")
    assert "× at 32K, 2.00× at 128K. Weights are extra." in table.note


def test_weights_are_by_part_with_those_that_a_token_passes_through(tmp_path):
    table = weights_table(planned(tmp_path, MIXTRAL, memory=None), "mixtral")
    assert table.columns == ("Weights", "Parameters", "Active", "Bytes")
    found = cells(table)
    assert found["experts"][:2] == ["45,097,156,608", "11,274,289,152"]
    assert found["all parameters"][:2] == ["46,702,792,704", "12,879,925,248"]
    assert "Bytes by part: 16 bits for each parameter." in table.note


def test_what_quantized_weights_need_is_asked_for_and_no_byte_is_shown(tmp_path):
    table = weights_table(planned(tmp_path, GPT_OSS), "gpt_oss")
    assert {row[-1] for row in cells(table).values()} == {"–"}
    assert "--weights 8 or --weights 60GiB says it" in table.note
    given = weights_table(planned(tmp_path, GPT_OSS, weights="4.25"), "gpt_oss")
    assert "Bytes by part: 4.25 bits for each parameter, without scales" in given.note
    said = weights_table(planned(tmp_path, GPT_OSS, weights="60GiB"), "gpt_oss")
    assert cells(said)["as --weights says"] == ["–", "–", "60.00 GiB"]


def test_cards_have_a_column_and_what_they_cannot_divide_is_said(tmp_path):
    table = weights_table(planned(tmp_path, QWEN_7B, cards=8), "qwen2")
    assert table.columns[-1] == "On each of 8 cards"
    assert "Tensor parallelism divides heads" in table.note
    assert "Not divided: 28 heads of weights of attention, which 8 cards cannot" in table.note


def test_requests_that_fit_are_counted_at_each_length(tmp_path):
    plan = planned(tmp_path, LLAMA_8B, *LENGTHS)
    query = ContextQuery(lengths=LENGTHS, item_bytes=2, memory=80 * GIB)
    table = requests_table(plan, query, "a model")
    assert table.title == "Requests that fit in 80 GiB beside the weights: a model in caches"
    assert table.columns == ("Caches", "One of 32K", "32K that fit", "One of 128K", "128K that fit")
    assert table.rows[0][1].text == "4.000 GiB"
    assert [cell.text for cell in table.rows[0][2::2]] == ["16", "4"]
    assert table.note.startswith("Not counted: activations")


def test_where_no_request_fits_the_cards_that_hold_one_are_named(tmp_path):
    query = ContextQuery(lengths=LENGTHS, item_bytes=2, memory=80 * GIB)
    table = requests_table(planned(tmp_path, MIXTRAL, *LENGTHS), query, "a model")
    said = "No request of 32K fits: the weights need 86.99 GiB of the card; 2 such cards hold one."
    assert said in table.note


def test_a_model_whose_weights_are_not_counted_says_why(tmp_path):
    values = {**LLAMA_8B, "vocab_size": None}
    table = context(tmp_path, values, memory=80 * GIB)
    assert "Weights are extra. Parameters are not counted: 'vocab_size' is missing" in table.note
    assert table.note.endswith("How many requests fit follows from their bytes: --weights 60GiB.")
