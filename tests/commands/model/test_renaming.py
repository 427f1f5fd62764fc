"""Fields under other names: put under the one that is read, or refused where two differ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.commands.model.renaming import ALWAYS, BY_TYPE, with_known_names

PAIRS = [
    *((kind, name, read) for kind in ("llama", "mpt") for name, read in ALWAYS.items()),
    *((kind, name, read) for kind, names in BY_TYPE.items() for name, read in names.items()
      # where other fields decide whether it counts, or it counts beside another value
      if kind not in ("falcon", "chatglm", "dbrx", "lfm2", "lfm2_moe")),
]  # fmt: skip


@given(st.sampled_from(PAIRS), st.integers(1, 99))
def test_another_name_is_that_of_the_field_it_means(pair, value):
    kind, name, read = pair
    found, twice = with_known_names({"model_type": kind, name: value})
    assert (found[read], twice) == (value, "")
    assert name not in found
    same, twice = with_known_names({"model_type": kind, name: value, read: value})
    assert (same[read], twice) == (value, "")
    _, twice = with_known_names({"model_type": kind, name: value, read: value + 1})
    assert twice == name


def test_older_names_of_lfm2_come_before_those_of_all_types():
    older = {"tie_embedding": False, "block_ff_dim": 12}
    both = {"tie_word_embeddings": True, "intermediate_size": 8}
    found, twice = with_known_names({"model_type": "lfm2", **older, **both})
    assert twice == ""
    assert (found["tie_word_embeddings"], found["intermediate_size"]) == (False, 12)
    assert with_known_names({"model_type": "llama", **older, **both})[0]["intermediate_size"] == 8


@pytest.mark.parametrize(
    ("attention", "heads"),
    [({"attn_type": "multiquery_attention"}, 1), ({"kv_n_heads": 8}, 8), ({}, None)],
)
def test_the_heads_of_keys_of_mpt_follow_from_its_kind_of_attention(attention, heads):
    found, _ = with_known_names({"model_type": "mpt", **attention})
    assert found.get("num_key_value_heads") == heads


def test_lists_of_one_number_are_that_number():
    lists = {"moe_topk": [8, 8], "num_shared_expert": [1, 2], "moe_intermediate_size": []}
    found, _ = with_known_names({"model_type": "hunyuan_v1_moe", **lists})
    assert (found["moe_topk"], found["num_shared_expert"]) == (8, [1, 2])
    assert found["moe_intermediate_size"] == []


def test_a_name_of_one_type_means_nothing_in_others():
    values = {"model_type": "llama", "d_model": 8}
    assert with_known_names(values) == (values, "")


def test_a_field_without_a_value_gives_way():
    found, twice = with_known_names({"model_type": "mpt", "d_model": 8, "hidden_size": None})
    assert (found["hidden_size"], twice) == (8, "")
    found, twice = with_known_names({"model_type": "mpt", "d_model": None, "hidden_size": 8})
    assert (found["hidden_size"], twice) == (8, "")


@pytest.mark.parametrize(
    ("values", "heads"),
    [
        ({}, 1),  # as where one head is read by all
        ({"multi_query": False}, None),
        ({"multi_query": False, "num_kv_heads": 8}, None),
        ({"new_decoder_architecture": True, "num_kv_heads": 8}, 8),
        ({"new_decoder_architecture": True, "num_kv_heads": 8, "multi_query": True}, 8),
        ({"num_key_value_heads": 4}, 1),
    ],
)
def test_the_heads_of_keys_of_falcon_follow_from_its_flags(values, heads):
    found, twice = with_known_names({"model_type": "falcon", **values})
    assert (found.get("num_key_value_heads"), twice) == (heads, "")


def test_what_follows_from_other_fields_is_put_in_place():
    assert (
        with_known_names({"model_type": "longcat_flash", "num_layers": 3})[0]["num_hidden_layers"]
        == 6
    )
    assert (
        with_known_names({"model_type": "mimo_v2", "sliding_window_size": 127})[0]["sliding_window"]
        == 128
    )
    assert with_known_names({"model_type": "gpt_bigcode"})[0]["num_key_value_heads"] == 1
    ring = {"num_attention_heads": 4, "head_dim": 16}
    found, _ = with_known_names({"model_type": "bailing_hybrid", **ring})
    assert (found["linear_num_heads"], found["linear_head_dim"]) == (4, 16)
    own, _ = with_known_names({"model_type": "bailing_hybrid", **ring, "linear_head_dim": 8})
    assert own["linear_head_dim"] == 8


def test_the_fields_of_a_caller_stay_as_they_are():
    values = {"model_type": "falcon", "multi_query": True}
    with_known_names(values)
    assert values == {"model_type": "falcon", "multi_query": True}
