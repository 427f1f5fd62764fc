"""The weights after a mixer: a feed-forward or experts, worked out by hand."""

from collections import Counter

import pytest

from attnbench.commands.model.configuration import fields
from attnbench.commands.model.families import FAMILIES
from attnbench.commands.model.feed_weights import after_mixer
from attnbench.commands.model.orders import FULL, LINEAR, MLP
from attnbench.commands.model.weights import EXPERTS, FEED_FORWARD, NORMS
from attnbench.errors import UsageError
from tests.commands.model.planned import written
from tests.commands.model.test_configured_layers import FAMILIES as SMALL_FAMILIES
from tests.commands.model.test_configured_layers import SMALL

MODEL, INNER, NARROW, NUMBER, USED = 64, 32, 16, 4, 2


def of_layer(tmp_path, model_type, kind=FULL, index=0, **more):
    """What follows the mixer of a layer of a small model."""
    values = {**SMALL, **SMALL_FAMILIES.get(model_type, {}), **more, "model_type": model_type}
    config = fields(written(tmp_path, values))
    return [*after_mixer(config, FAMILIES[model_type], kind, index)]


def numbers(found):
    """How many there are of each part."""
    parts = Counter()
    for one in found:
        parts[one.part] += one.numbers
    return +parts


@pytest.mark.parametrize(
    ("model_type", "more", "expected"),
    [
        ("llama", {}, 3 * MODEL * INNER),
        ("llama", {"mlp_bias": True}, 3 * MODEL * INNER + 2 * INNER + MODEL),
        ("gpt2", {}, 2 * 4 * MODEL * MODEL + 4 * MODEL + MODEL),  # four times the model's width
        ("gpt2", {"n_inner": 24}, 2 * 24 * MODEL + 24 + MODEL),
        ("bitnet", {}, 3 * MODEL * INNER + INNER),
    ],
)
def test_a_feed_forward_has_its_matrices_and_biases(tmp_path, model_type, more, expected):
    assert numbers(of_layer(tmp_path, model_type, **more)) == {FEED_FORWARD: expected}


def test_experts_are_all_in_memory_and_a_token_passes_through_few(tmp_path):
    found = of_layer(tmp_path, "mixtral")
    (experts,) = [one for one in found if one.part == EXPERTS]
    assert experts.numbers == NUMBER * 3 * MODEL * INNER
    assert experts.active == USED * 3 * MODEL * INNER
    assert (experts.units, experts.rows) == (INNER, True)
    assert numbers(found)[NORMS] == NUMBER * MODEL  # of the router


def test_shared_experts_are_a_feed_forward_of_their_width(tmp_path):
    plain = numbers(
        of_layer(tmp_path, "glm4_moe", index=3, first_k_dense_replace=1, n_shared_experts=0)
    )
    shared = numbers(
        of_layer(tmp_path, "glm4_moe", index=3, first_k_dense_replace=1, n_shared_experts=2)
    )
    assert shared - plain == {FEED_FORWARD: 3 * MODEL * 2 * NARROW}
    dense = numbers(of_layer(tmp_path, "glm4_moe", index=0, first_k_dense_replace=1))
    assert dense == {FEED_FORWARD: 3 * MODEL * INNER}


@pytest.mark.parametrize(
    ("model_type", "kind", "parts"),
    [
        ("nemotron_h", LINEAR, set()),
        ("nemotron_h", FULL, set()),
        ("nemotron_h", MLP, {FEED_FORWARD}),
        ("mamba2", LINEAR, set()),
        ("jamba", LINEAR, {FEED_FORWARD}),
    ],
)
def test_some_layers_have_nothing_after_their_mixer(tmp_path, model_type, kind, parts):
    dense = {"expert_layer_period": 2, "expert_layer_offset": 1} if model_type == "jamba" else {}
    assert {*numbers(of_layer(tmp_path, model_type, kind, **dense))} == parts


def test_layers_may_have_feed_forwards_of_their_own_widths(tmp_path):
    listed = {"intermediate_size": [8, 16, 32, 64], "num_kv_shared_layers": 0}
    found = [
        numbers(of_layer(tmp_path, "gemma3n_text", index=i, **listed))[FEED_FORWARD]
        for i in range(4)
    ]
    assert found == [3 * MODEL * width for width in (8, 16, 32, 64)]
    doubled = {"use_double_wide_mlp": True, "num_kv_shared_layers": 2}
    usual, wide = (
        numbers(of_layer(tmp_path, "gemma4_text", index=i, **doubled))[FEED_FORWARD] for i in (1, 2)
    )
    assert wide == 2 * usual


def test_more_experts_of_a_token_than_there_are_is_refused(tmp_path):
    with pytest.raises(UsageError, match="9 experts of a token are more than the 4 of a layer"):
        of_layer(tmp_path, "mixtral", num_experts_per_tok=9)
