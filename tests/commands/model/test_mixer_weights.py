"""The weights of attention, recurrences and convolutions, worked out by hand."""

from collections import Counter

import pytest

from attnbench.commands.model.configuration import fields
from attnbench.commands.model.configured_layers import layers_with_fields
from attnbench.commands.model.families import FAMILIES
from attnbench.commands.model.mixer_weights import mixer
from attnbench.commands.model.weights import ATTENTION, STATES
from attnbench.errors import UsageError
from tests.commands.model.planned import written
from tests.commands.model.test_configured_layers import FAMILIES as SMALL_FAMILIES
from tests.commands.model.test_configured_layers import SMALL

MODEL, HEADS, KV_HEADS, WIDTH = 64, 4, 2, 16


def of_layer(tmp_path, model_type, index=0, **more):
    """What mixes the tokens of a layer of a small model."""
    values = {**SMALL, **SMALL_FAMILIES.get(model_type, {}), **more, "model_type": model_type}
    config = fields(written(tmp_path, values))
    kind, layer, own = [*layers_with_fields(config)][index]
    return [*mixer(own, FAMILIES[model_type], kind, layer)]


def numbers(found):
    """How many there are of each part."""
    parts = Counter()
    for one in found:
        parts[one.part] += one.numbers
    return +parts


LLAMA = 2 * HEADS * WIDTH * MODEL + 2 * KV_HEADS * WIDTH * MODEL  # of queries and back, and caches


@pytest.mark.parametrize(
    ("model_type", "more", "expected"),
    [
        ("llama", {}, LLAMA),
        ("llama", {"attention_bias": True}, LLAMA + (HEADS + 2 * KV_HEADS) * WIDTH + MODEL),
        ("qwen2", {}, LLAMA + (HEADS + 2 * KV_HEADS) * WIDTH),
        ("qwen3", {}, LLAMA + 2 * WIDTH),  # a gain for each number of a head
        ("olmo2", {}, LLAMA + (HEADS + KV_HEADS) * WIDTH),  # of all heads
        ("gpt_oss", {}, LLAMA + (HEADS + 2 * KV_HEADS) * WIDTH + MODEL + HEADS),  # and sinks
    ],
)
def test_attention_has_its_maps_and_what_its_family_adds(tmp_path, model_type, more, expected):
    assert numbers(of_layer(tmp_path, model_type, **more)) == {ATTENTION: expected}


def test_queries_are_divided_by_heads_and_keys_with_those_that_read_them(tmp_path):
    queries, keys = of_layer(tmp_path, "llama")
    assert (queries.units, queries.readers, keys.units, keys.readers) == (HEADS, 0, KV_HEADS, HEADS)


def test_latents_are_on_every_card_and_maps_up_are_divided(tmp_path):
    found = of_layer(tmp_path, "deepseek_v3")
    rank, query_rank, inner, rope, values = 24, 16, 8, 4, 12
    down = query_rank * (MODEL + 1) + (rank + rope) * MODEL + rank
    up = query_rank * HEADS * (inner + rope) + HEADS * (rank * (inner + values) + values * MODEL)
    assert sum(one.numbers for one in found if one.units == 1) == down
    assert sum(one.numbers for one in found if one.units == HEADS) == up


def test_an_index_is_whole_on_each_card(tmp_path):
    plain, indexed = of_layer(tmp_path, "deepseek_v3"), of_layer(tmp_path, "deepseek_v32")
    (index,) = indexed[len(plain) :]
    assert (index.units, index.numbers) == (1, 16 * 2 * 8 + MODEL * (8 + 2) + 2 * 8)


def test_a_recurrence_and_a_convolution_are_states(tmp_path):
    assert {*numbers(of_layer(tmp_path, "mamba2"))} == {STATES}
    conv = numbers(of_layer(tmp_path, "lfm2", full_attn_idxs=[1]))
    assert conv == {STATES: MODEL * (3 * MODEL + 3) + MODEL * MODEL}
    both = numbers(of_layer(tmp_path, "falcon_h1"))
    assert {*both} == {ATTENTION, STATES}


def test_a_layer_that_shares_caches_has_no_maps_to_them(tmp_path):
    own, shared = (numbers(of_layer(tmp_path, "gemma3n_text", index=i)) for i in (1, 5))
    caches = 2 * KV_HEADS * WIDTH * MODEL
    assert own[ATTENTION] - shared[ATTENTION] == caches + WIDTH, "and no norm of its keys"


def test_layers_without_attention_mix_nothing(tmp_path):
    assert of_layer(tmp_path, "nemotron_h", index=1) == []


def test_what_is_not_known_of_a_type_is_refused(tmp_path):
    listed = {"layer_types": ["indexed_attention"] * 4, "index_head_dim": 8}
    with pytest.raises(UsageError, match="of a layer 'indexed_attention' of this type are not"):
        of_layer(tmp_path, "llama", **listed)
    with pytest.raises(UsageError, match="'gating' is 'odd'; write 'per-head'"):
        of_layer(tmp_path, "laguna", layer_types=["full_attention"] * 4, gating="odd", head_dim=16)
