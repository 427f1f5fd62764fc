"""Which mechanism computes each kind of layer, beside the layers of transformers themselves."""

import json
from collections import Counter
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.attention.checks.flops import counted_flops
from attnbench.commands.model.command import layer_kinds
from attnbench.commands.model.configured_layers import layers
from attnbench.commands.model.context import ContextQuery, Layer, rows
from attnbench.commands.model.mechanisms import WEIGHED, fields
from attnbench.commands.model.mechanisms import measurable as measurable_of
from attnbench.commands.model.orders import FULL, SLIDING
from attnbench.errors import UsageError
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Level, Mode, Selection, Workload
from tests.commands.model.test_configured_layers import FAMILIES, SAME, SMALL, caches

LENGTH = 37
# how the names of their classes end
SUBLAYERS = ("Attention", "DeltaNet", "Mixer", "MambaLayer")
# kinds of layer that no mechanism computes, by what their reason says
ABSENT = {
    "bailing_hybrid": "gate",
    "deepseek_v4": "gated pools",
    "falcon_h1": "attention and a recurrence",
    "zamba2": "attention and a recurrence",
    "zaya": "attention and a recurrence",
    "lfm2_moe": "convolution alone",
    "mimo_v2_flash": "heads of values are 8 wide, of keys 16",
    "minimax_m3_vl_text": "indexed reads latents",
    "falcon_mamba": "Mamba-1",
    "mamba": "Mamba-1",
    "jamba": "Mamba-1",
    "lfm2": "convolution alone",
    "llama4_text": "causal chunks",
    "gemma3n_text": "earlier layer",
    "gemma4_text": "keys that are its values",
    "glm_moe_dsa": "index of an earlier layer",
}
OF_ONE_WIDTH = {"v_head_dim": 8}  # in place of the 12 of these configurations
LATENTS = (
    *("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa", "kimi_linear"),
    *("bailing_hybrid", "mistral4"),
)


measurable = partial(measurable_of, feeds=False)


def written(kind, tmp_path, **more):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**SMALL, **FAMILIES[kind], "model_type": kind, **more}))
    return file


def built(kind, found):
    """The module of a kind of layer, the config of its mechanism and the workload of a step."""
    chosen = Selection.read(kind.mechanism)
    mechanism = card(chosen.name)
    config = mechanism.configure(dict(chosen.options))
    w = config.sized(
        Workload(
            batch=1,
            seq_len=LENGTH,
            width=found.width,
            heads=found.heads,
            level=Level.ATTENTION,
            mode=Mode("decode"),
            causal=True,
        )
    )
    form = mechanism.default_form(config, w)
    assert mechanism.refusal(form, config, w) is None
    return mechanism.forms[form](config, w), config, w


def weights(module):
    """The elements of all matrices and filters, without biases, scales and rates."""
    drawn = (buffer for name, buffer in module.named_buffers() if name.startswith("drawn"))
    return sum(p.numel() for p in (*module.parameters(), *drawn) if p.squeeze().dim() > 1)


@caches
@pytest.mark.parametrize(
    ("kind", "more"),
    [(kind, {}) for kind in FAMILIES if kind not in LATENTS]
    + [(kind, OF_ONE_WIDTH) for kind in LATENTS],
)
def test_a_mechanism_has_the_weights_of_the_layer_and_keeps_its_bytes(kind, more, tmp_path):
    from transformers import AutoConfig, AutoModel

    file = written(kind, tmp_path, **more)
    found = measurable(file)
    own = {layer.kind: i for i, (_, layer) in reversed([*enumerate(layers(fields(file)))])}
    sizes = {**SMALL, **FAMILIES[kind], **more, "model_type": kind}
    with torch.device("meta"):
        theirs = AutoModel.from_config(AutoConfig.for_model(**sizes))
    absent = [one.reason for one in found.kinds if not one.mechanism and one.parts]
    assert all(ABSENT[kind] in reason for reason in absent)
    for one in found.kinds:
        if not one.mechanism:
            continue
        layer = (theirs.h if kind == "falcon" else theirs.layers)[own[one.words]]
        (attention,) = [
            part for part in layer.children() if type(part).__name__.endswith(SUBLAYERS)
        ]
        module, *_ = built(one, found)
        assert weights(module) == weights(attention), one
        kept, counted = state_bytes(one, found)
        assert (kept,) == counted, one


def test_types_are_called_compared_by_weights_that_are():
    assert {*FAMILIES, *SAME} == WEIGHED


def test_sizes_that_no_mechanism_has_are_said(tmp_path):
    (only,) = measurable(written("deepseek_v3", tmp_path)).kinds
    assert (only.mechanism, only.layers) == ("", 4)
    assert only.reason == "heads of values are 12 wide, of keys 8; latent has one width"


@pytest.mark.parametrize(
    "kind",
    [
        *("qwen3_next", "kimi_linear", "gpt_oss", "minimax", "nemotron_h"),
        *("gemma3_text", "cohere2", "olmo_hybrid", "granitemoehybrid", "deepseek_v3"),
    ],
)
def test_the_flops_of_a_step_are_those_that_torch_counts(kind, tmp_path):
    found = measurable(written(kind, tmp_path, **(OF_ONE_WIDTH if kind in LATENTS else {})))
    for one in (each for each in found.kinds if each.mechanism):
        module, config, w = built(one, found)
        x = torch.randn(1, LENGTH, found.width)
        with torch.no_grad():
            _, state = module.prefill(x[:, :-1], module.start(1, LENGTH))
        counted = counted_flops(module, x[:, -1:], call=partial(module.step, state=state))
        declared = module.step_flops(config, w)
        assert declared.projections + declared.core == counted, one


def state_bytes(kind, found):
    """What the mechanism of a kind keeps of the context, and what the kind does."""
    module, config, w = built(kind, found)
    # of a window, attnbench keeps the last token too, which is the query itself
    parts = [
        part._replace(max_entries=part.max_entries + 1) if "sliding" in kind.words else part
        for part in kind.parts
    ]
    query = ContextQuery(lengths=(LENGTH,), item_bytes=4)
    return 4 * module.state_elements(config, w), rows([Layer("", tuple(parts), None)], query)[0].at


LAYERED = {"num_hidden_layers": 4, "layer_types": [SLIDING] * 3 + [FULL], "sliding_window": 8}


def test_windows_of_latents_are_a_row_of_their_own_with_the_reason(tmp_path):
    """No mechanism reads them; as full ones they would hide the layers that are."""
    sizes = {**LAYERED, **OF_ONE_WIDTH}
    windows, full = measurable(written("deepseek_v3", tmp_path, **sizes)).kinds
    assert (windows.layers, windows.mechanism) == (3, "")
    assert windows.reason == "no mechanism here reads a window of latents"
    assert windows.parts
    assert (full.layers, full.mechanism.partition("[")[0]) == (1, "latent")


def test_a_latent_without_rotated_numbers_has_none(tmp_path):
    sizes = {**OF_ONE_WIDTH, "qk_rope_head_dim": 0}
    found = measurable(written("deepseek_v3", tmp_path, **sizes))
    (only,) = found.kinds
    assert "rope=0" in only.mechanism
    assert state_bytes(only, found) == (4 * LENGTH * 24, (4 * LENGTH * 24,))


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"num_heads": 7}, "128 channels are no whole multiple of its 7 heads"),
        ({"num_heads": 4}, "4 heads of 16 are not its 128 channels"),
        ({"n_groups": 3}, "its 8 heads are no whole multiple of its 3 groups"),
    ],
)
def test_heads_that_do_not_make_the_channels_are_not_measured(sizes, reason, tmp_path):
    (only,) = measurable(written("mamba2", tmp_path, **sizes)).kinds
    assert (only.mechanism, only.reason) == ("", reason)


def test_heads_of_a_mamba_are_its_own_also_where_they_are_those_of_the_model(tmp_path):
    sizes = {"num_heads": 4, "expand": 1, "num_attention_heads": 4}
    found = measurable(written("mamba2", tmp_path, **sizes))
    (only,) = found.kinds
    kept, counted = state_bytes(only, found)
    assert (kept,) == counted


SIZE = st.integers(0, 12)
HEADS = st.integers(0, 6)
RANDOM = st.fixed_dictionaries(
    {"hidden_size": st.sampled_from([48, 64]), "num_attention_heads": st.integers(1, 6)},
    optional={
        "num_key_value_heads": HEADS,
        "head_dim": SIZE,
        "sliding_window": SIZE,
        "attention_chunk_size": SIZE,
        "kv_lora_rank": SIZE,
        "q_lora_rank": SIZE,
        "qk_rope_head_dim": SIZE,
        "qk_nope_head_dim": SIZE,
        "v_head_dim": SIZE,
        "index_n_heads": HEADS,
        "index_head_dim": SIZE,
        "index_topk": SIZE,
        "linear_num_value_heads": HEADS,
        "linear_num_key_heads": HEADS,
        "linear_key_head_dim": SIZE,
        "linear_value_head_dim": SIZE,
        "linear_num_heads": HEADS,
        "linear_head_dim": SIZE,
        "linear_conv_kernel_dim": st.integers(0, 4),
        "mamba_n_heads": HEADS,
        "mamba_d_head": SIZE,
        "mamba_d_state": SIZE,
        "mamba_n_groups": st.integers(0, 3),
        "mamba_expand": st.integers(0, 3),
        "num_heads": HEADS,
        "state_size": SIZE,
        "conv_L_cache": st.integers(0, 4),
        "num_kv_shared_layers": st.integers(0, 3),
        "attention_k_eq_v": st.booleans(),
        "attn_output_gate": st.booleans(),
        "attention_bias": st.booleans(),
    },
)
KINDS_OF_LAYER = st.lists(
    st.sampled_from(
        ["full_attention", "sliding_attention", "linear_attention", "indexed_attention"]
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("order", [["full_attention"], ["sliding_attention"]])
def test_keys_that_are_values_are_measured_by_no_mechanism_that_keeps_both(order, tmp_path):
    sizes = {"layer_types": order, "num_hidden_layers": 1}
    (only,) = measurable(written("deepseek_v4", tmp_path, **sizes)).kinds
    assert (only.mechanism, only.reason) == ("", "no mechanism here has keys that are its values")


@given(kind=st.sampled_from(sorted(FAMILIES)), sizes=RANDOM, order=st.none() | KINDS_OF_LAYER)
@settings(max_examples=300, deadline=None)
def test_the_layers_of_any_configuration_are_counted_once_and_measured_as_they_are(
    kind, sizes, order, tmp_path_factory
):
    """Refused in a sentence, or every layer is in one kind; what a mechanism computes of a kind
    keeps the bytes of that kind, so no size was dropped.
    """
    listed = {} if order is None else {"layer_types": order, "num_hidden_layers": len(order)}
    values = {**SMALL, **FAMILIES[kind], **sizes, **listed, "model_type": kind}
    file = tmp_path_factory.getbasetemp() / "random.json"
    file.write_text(json.dumps(values))
    try:
        found = measurable(file)
    except UsageError:
        return
    every = [layer for _, layer in layers(fields(file))]
    assert Counter(layer.kind for layer in every) == {k.words: k.layers for k in found.kinds}
    query = ContextQuery(lengths=(LENGTH,), item_bytes=4)
    whole = next(row for row in rows(every, query) if row.kind == "all layers")
    alone = [rows([Layer("", k.parts, None)] * k.layers, query)[0] for k in found.kinds]
    assert sum(row.at[0] for row in alone) == whole.at[0]
    shown = layer_kinds(found, "float32", (LENGTH,))  # the rows of the table
    assert sum(row.layers for row in shown) == len(every)
    assert sum(row.kept[LENGTH] for row in shown) == whole.at[0]
    for one in found.kinds:
        assert bool(one.mechanism) + bool(one.reason) + (not one.parts) == 1 or one.reason
        if one.mechanism:
            kept, counted = state_bytes(one, found)
            assert (kept,) == counted, (one, values)
