"""Families of models: what files leave out, and which layers have experts."""

import json

import pytest

from attnbench.commands.model.configuration import ConfigurationFields, fields
from attnbench.commands.model.families import A_HEAD, ALL_HEADS, FAMILIES, is_set
from attnbench.errors import UsageError


def test_a_flag_is_the_file_s_or_that_of_the_family(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llama", "attention_bias": True}))
    config = fields(file)
    assert is_set(config, ("attention_bias", False))
    assert is_set(config, ("mlp_bias", True))
    assert not is_set(config, False)


def configuration(**values):
    """The fields of a file of which only these matter."""
    return ConfigurationFields("config.json", {"num_hidden_layers": 6, **values})


def test_a_flag_that_is_neither_true_nor_false_is_refused():
    with pytest.raises(UsageError, match="'mlp_bias' is 'no'; write true or false"):
        is_set(configuration(mlp_bias="no"), ("mlp_bias", True))
    assert is_set(configuration(mlp_bias=None), ("mlp_bias", True))


@pytest.mark.parametrize(
    ("model_type", "values", "sparse"),
    [
        ("mixtral", {}, [0, 1, 2, 3, 4, 5]),
        ("deepseek_v3", {"first_k_dense_replace": 2}, [2, 3, 4, 5]),
        ("deepseek_v3", {"mlp_layer_types": ["dense", "sparse"] * 3}, [1, 3, 5]),
        ("deepseek_v3", {"moe_layer_freq": [0, 1, 1, 0, 0, 1]}, [1, 2, 5]),
        ("qwen3_moe", {"decoder_sparse_step": 2}, [1, 3, 5]),
        ("qwen3_moe", {"mlp_only_layers": [0, 3]}, [1, 2, 4, 5]),
        ("llama4_text", {"interleave_moe_layer_step": 3}, [2, 5]),
        ("llama4_text", {"moe_layers": [0, 4]}, [0, 4]),
        ("ernie4_5_moe", {"moe_layer_start_index": 2, "moe_layer_end_index": 4}, [2, 3, 4]),
        ("ernie4_5_moe", {"moe_layer_start_index": 4, "moe_layer_end_index": -1}, [4, 5]),
        (
            "jamba",
            {"expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 4},
            [1, 3, 5],
        ),
        ("jamba", {"expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 1}, []),
    ],
)
def test_the_layers_with_experts_are_those_that_the_file_says(model_type, values, sparse):
    experts = FAMILIES[model_type].experts
    found = [i for i in range(6) if experts.sparse(configuration(**values), "full_attention", i)]
    assert found == sparse


def test_a_frequency_of_experts_that_is_not_known_is_refused():
    with pytest.raises(UsageError, match="'moe_layer_freq' is not read here"):
        FAMILIES["deepseek_v3"].experts.sparse(configuration(moe_layer_freq=2), "moe", 0)


def test_shared_experts_are_as_wide_as_all_of_them_together():
    shared = FAMILIES["deepseek_v3"].experts.shared
    assert shared(configuration(moe_intermediate_size=16, n_shared_experts=None)) == 0
    with pytest.raises(UsageError, match=r"'n_shared_experts' or .* is missing; add it, null"):
        shared(configuration(moe_intermediate_size=16))
    assert shared(configuration(moe_intermediate_size=16, n_shared_experts=3)) == 48


def test_every_family_has_two_matrices_or_a_gate_and_known_norms_of_queries():
    for kind, family in FAMILIES.items():
        assert family.matrices in (2, 3), kind
        assert family.query_norm in ("", A_HEAD, ALL_HEADS), kind
