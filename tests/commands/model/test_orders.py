"""The order of a model's layers: as its file lists it, or as its type of model has it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.commands.model import orders
from attnbench.commands.model.configuration import ConfigurationFields
from attnbench.commands.model.configured_layers import KINDS
from attnbench.commands.model.orders import FULL, LINEAR, MOE, SLIDING, START_LATE, kinds_of
from attnbench.errors import UsageError


def kinds(model_type, layers=4, **values):
    """The kinds of the layers of a file of which only these fields matter."""
    fields = {"model_type": model_type, "num_hidden_layers": layers, **values}
    return kinds_of(ConfigurationFields("config.json", fields), KINDS)


@pytest.mark.parametrize(
    ("model_type", "values", "found"),
    [
        ("llama", {}, [FULL] * 4),
        ("mistral", {"sliding_window": 8}, [SLIDING] * 4),
        ("qwen2", {"sliding_window": 8}, [FULL] * 4),  # unless that is asked for
        (
            "qwen2",
            {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 3},
            [FULL, FULL, FULL, SLIDING],
        ),
        ("gemma2", {}, [SLIDING, FULL, SLIDING, FULL]),
        *(
            (
                name,
                {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 3},
                [FULL] * 3 + [SLIDING],
            )
            for name in START_LATE
            if name != "qwen3_omni_moe_talker_code_predictor"
        ),
        (
            "qwen3_omni_moe_talker_code_predictor",  # which has no such flag
            {"sliding_window": 8, "max_window_layers": 1},
            [FULL] + [SLIDING] * 3,
        ),
        (
            "qwen2_moe",
            {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 2},
            [SLIDING, FULL, FULL, FULL],
        ),
        ("qwen2_moe", {"sliding_window": 8, "max_window_layers": 2}, [FULL] * 4),
        (
            "smollm3",
            {"sliding_window": 8, "use_sliding_window": True, "no_rope_layers": [1, 0, 1, 0]},
            [FULL, SLIDING, FULL, SLIDING],
        ),
        (
            "smollm3",
            {"sliding_window": 8, "use_sliding_window": True},
            [FULL, FULL, FULL, SLIDING],
        ),
        ("smollm3", {"sliding_window": 8}, [FULL] * 4),
        ("cohere2", {"sliding_window_pattern": 3}, [SLIDING, SLIDING, FULL, SLIDING]),
        ("jamba", {"attn_layer_period": 3, "attn_layer_offset": 1}, [LINEAR, FULL, LINEAR, LINEAR]),
        ("kimi_linear", {"linear_full_attn_layers": [2, 4]}, [LINEAR, FULL] * 2),  # from 1
        ("bamba", {"attn_layer_indices": [1]}, [LINEAR, FULL, LINEAR, LINEAR]),  # from 0
        ("nemotron_h", {"hybrid_override_pattern": "M-*E"}, [LINEAR, orders.MLP, FULL, MOE]),
        ("minimax", {"attn_type_list": [1, 0, 0, 0]}, [FULL, LINEAR, LINEAR, LINEAR]),
        ("minimax", {}, [FULL, LINEAR] * 2),
    ],
)
def test_layers_that_are_not_listed_stand_as_their_type_has_them(model_type, values, found):
    assert kinds(model_type, **values) == found


def test_layers_that_are_listed_are_read_by_older_names_too():
    listed = ["attention", "mamba", "full_attention", "linear_attention"]
    assert kinds("new", layer_types=listed) == [FULL, LINEAR, FULL, LINEAR]
    assert kinds("new", layers_block_type=listed) == [FULL, LINEAR, FULL, LINEAR]


def test_layers_that_predict_further_tokens_are_left_out():
    listed = ["full_attention"] * 4 + ["sliding_attention"]
    assert kinds("new", layer_types=listed, num_nextn_predict_layers=1) == [FULL] * 4


@pytest.mark.parametrize(
    ("model_type", "values", "said"),
    [
        ("new", {}, "how model type 'new' orders its layers is not known; add 'layer_types'"),
        ("new", {"layer_types": [FULL]}, "layer_types names 1 layers, and 'num_hidden_layers' 4"),
        ("new", {"layer_types": ["rwkv"] * 4}, "unknown kind of layer 'rwkv'; known are full"),
        ("nemotron_h", {"hybrid_override_pattern": "M?M*"}, "unknown kind of layer '?'"),
        (
            "kimi_linear",
            {"linear_full_attn_layers": [2, 4], "layer_types": [FULL] * 4},
            "'layer_types' contradicts 'linear_full_attn_layers', by which layers are linear",
        ),
        ("bamba", {"attn_layer_indices": [4]}, r"'attn_layer_indices' is \[4\]; there are 4"),
        ("llama", {"sliding_window": 8, "use_sliding_window": 1}, "is 1; write true or false"),
        ("qwen2", {"use_sliding_window": True}, "'sliding_window' is missing; add it, null where"),
    ],
)
def test_an_order_that_cannot_be_is_refused_by_the_name_of_its_field(model_type, values, said):
    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        kinds(model_type, **values)


PERIODIC = {
    "olmo3": (FULL, SLIDING, 4),
    "qwen3_next": (FULL, LINEAR, 4),
    "gpt_oss": (FULL, SLIDING, 2),
}


@given(st.sampled_from([*PERIODIC]), st.integers(1, 40))
def test_the_last_layer_of_each_period_is_of_another_kind(model_type, layers):
    last, others, period = PERIODIC[model_type]
    found = kinds(model_type, layers)
    assert len(found) == layers
    assert found.count(last) == layers // period
    assert {*found[period - 1 :: period]} <= {last}
    assert {*found} <= {last, others}


def test_every_type_has_one_order():
    names = [name for names in orders.BY_TYPE for name in names.split()]
    assert len(names) == len({*names}) == len(orders.ORDERS)
    assert {*orders.DECIDES} <= {*orders.ORDERS}
