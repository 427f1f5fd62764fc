"""What recurrent layers and convolutions keep, whatever the length: shapes worked out by hand."""

import pytest

from attnbench.commands.model.configuration import ConfigurationFields
from attnbench.commands.model.context import CachePart
from attnbench.commands.model.states import (
    FLOAT32,
    compressed_queries,
    convolution,
    head_width,
    recurrence,
    state_shape,
)
from attnbench.errors import UsageError


def configuration(**values):
    """The fields of a file of which only these matter."""
    return ConfigurationFields("config.json", values)


DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}
MAMBA = {"mamba_d_state": 8, "mamba_n_groups": 2, "mamba_d_conv": 4, "hidden_size": 64}


@pytest.mark.parametrize(
    ("values", "shape", "channels"),
    [
        (DELTA, (4, 8, 16), 2 * 2 * 8 + 4 * 16),
        ({"linear_num_heads": 4, "linear_head_dim": 16}, (4, 16, 16), 3 * 4 * 16),
        ({"model_type": "minimax", "num_attention_heads": 4, "head_dim": 16}, (4, 16, 16), 0),
        ({**MAMBA, "mamba_expand": 2}, (128, 8), 128 + 2 * 2 * 8),
        ({**MAMBA, "mamba_d_ssm": 96}, (96, 8), 96 + 2 * 2 * 8),
        ({**MAMBA, "mamba_num_heads": 3, "mamba_head_dim": 16}, (48, 8), 48 + 2 * 2 * 8),
        ({"model_type": "mamba", "state_size": 8, "expand": 2, "hidden_size": 64}, (128, 8), 128),
        (
            {"model_type": "mamba", "state_size": 8, "intermediate_size": 100, "hidden_size": 64},
            *((100, 8), 100),
        ),
    ],
)
def test_a_state_has_the_shape_of_its_recurrence(values, shape, channels):
    assert state_shape(configuration(**values)) == (shape, channels)


def test_a_state_is_float32_where_a_convolution_is_before_it_and_keeps_one_entry():
    words, (state, inputs) = recurrence(configuration(**DELTA), "linear_attention", 0)
    assert words == "linear, state 4 × 8 × 16, convolution 4"
    assert state == CachePart(4 * 8 * 16, max_entries=1, item_bytes=FLOAT32)
    assert inputs == CachePart(96, max_entries=3)
    assert state.entries(1000) == 1
    minimax = {"model_type": "minimax", "num_attention_heads": 2, "head_dim": 4}
    words, (state,) = recurrence(configuration(**minimax), "linear_attention", 0)
    assert (words, state) == ("linear, state 2 × 4 × 4", CachePart(32, max_entries=1))


def test_a_convolution_keeps_all_inputs_but_that_of_the_token_itself():
    words, parts = convolution(configuration(hidden_size=64, conv_L_cache=3), "conv", 0)
    assert (words, parts) == ("convolution 3", (CachePart(64, max_entries=2),))


def test_queries_and_keys_that_pass_two_convolutions_keep_the_inputs_of_both():
    values = {"num_attention_heads": 4, "cca_time0": 2, "cca_time1": 3}
    words, parts = compressed_queries(configuration(**values), 2, 16)
    assert words == "convolutions 2 and 3, delayed 16"
    assert parts == (CachePart(6 * 16, max_entries=3), CachePart(16, max_entries=1))


@pytest.mark.parametrize(
    ("values", "width"),
    [
        ({"hidden_size": 64}, 16),
        ({"hidden_size": 64, "head_dim": 8}, 8),
        ({"hidden_size": 64, "head_dim": None, "model_type": "gemma"}, 16),
    ],
)
def test_a_head_is_as_wide_as_the_file_says_or_its_share_of_the_model(values, width):
    assert head_width(configuration(**values), 4) == width


def test_a_width_that_cannot_be_is_refused_or_asked_for():
    with pytest.raises(UsageError, match="'hidden_size' is 66, which the 4 heads do not divide"):
        head_width(configuration(hidden_size=66), 4)
    with pytest.raises(UsageError, match="'head_dim' is missing; add it"):
        head_width(configuration(hidden_size=64, model_type="gemma"), 4)
