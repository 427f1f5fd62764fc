"""The feed-forwards of a configuration, beside those of transformers themselves."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.attention.checks.checks import verify
from attnbench.commands.model.configuration import fields
from attnbench.commands.model.configured_layers import layers
from attnbench.commands.model.feed_forwards import FURTHER, NAMED, USUAL, WITHOUT
from attnbench.commands.model.mechanisms import measurable
from attnbench.errors import UnknownMechanism, UsageError
from attnbench.mechanisms.catalogue import registry
from attnbench.mechanisms.catalogue.presets import expand
from attnbench.records import Level, Selection, Workload
from tests.commands.model.test_configured_layers import FAMILIES, SMALL, caches

# of a layer of transformers, what is no feed-forward: by how names of classes end
OTHERS = (
    "Attention",
    "DeltaNet",
    "Norm",
    "Norm1P",
    "Mixer",
    "MambaLayer",
    "Dropout",
    "ShortConv",
    "Conv",
)
# families of which nobody here knows the feed-forward, or that have more than one
UNKNOWN = {
    *("apertus", "bailing_hybrid", "bitnet", "deepseek_v4", "falcon", "gemma3n_text", "glm4v"),
    *("lfm2_moe", "mimo_v2_flash", "minimax_m3_vl_text", "mistral4", "zamba2"),
    "zaya",
}
MORE = {
    "gpt2": {"n_embd": 64, "n_layer": 4, "n_head": 4},
    "gpt_neox": {"hidden_act": "gelu"},
    "glm": {"head_dim": 16},
    "qwen2_moe": {"shared_expert_intermediate_size": 24, "mlp_only_layers": [0]},
}
KNOWN = [kind for kind in (*FAMILIES, *MORE) if kind not in {*UNKNOWN, *WITHOUT}]


def written(tmp_path, kind, **more):
    file = tmp_path / "config.json"
    own = FAMILIES.get(kind) or MORE.get(kind, {})
    file.write_text(json.dumps({**SMALL, **own, "model_type": kind, **more}))
    return file


def feeds(file):
    return [kind for kind in measurable(file).kinds if kind.feeds]


def module_of(kind, width, form=None, dtype="float32"):
    chosen = Selection.read(kind)
    mechanism = registry.card(chosen.name)
    config = mechanism.configure(dict(chosen.options))
    w = Workload(
        batch=2, seq_len=9, width=width, heads=1, level=Level.ATTENTION, causal=True, dtype=dtype
    )
    form = form or mechanism.default_form(config, w)
    assert mechanism.refusal(form, config, w) is None
    torch.manual_seed(0)
    return mechanism.forms[form](config, w), mechanism.parameters(config, w)


@caches
@pytest.mark.parametrize("kind", KNOWN)
def test_the_parameters_are_those_of_transformers(kind, tmp_path):
    """Of all layers together, without corrections of a router, which multiply nothing."""
    from transformers import AutoConfig, AutoModel

    file = written(tmp_path, kind)
    config = AutoConfig.for_model(**json.loads(file.read_text()))
    file.write_text(config.to_json_string(use_diff=False))
    with torch.device("meta"):
        theirs = AutoModel.from_config(config)
    found = measurable(file)
    counted = 0
    for one in (kind for kind in found.kinds if kind.feeds):
        assert not one.reason
        module, parameters = module_of(one.mechanism, found.width)
        assert parameters == sum(p.numel() for p in module.parameters()), one
        counted += one.layers * parameters
    every = theirs.h if hasattr(theirs, "h") else theirs.layers
    expected = sum(
        parameter.numel()
        for layer in every
        for name, part in layer.named_children()
        if not type(part).__name__.endswith(OTHERS)
        for path, parameter in part.named_parameters()
        if "correction" not in path and "moe_statics" not in path
    )
    if kind == "nemotron_h":
        expected = sum(
            p.numel()
            for layer in every
            if type(layer.mixer).__name__.endswith(("MLP", "MoE", "MOE"))
            for p in layer.mixer.parameters()
        )
    assert counted == expected


@caches
@pytest.mark.parametrize("kind", sorted({*KNOWN} - {"gpt_oss"}))
def test_what_a_file_does_not_say_is_what_transformers_fills_in(kind, tmp_path):
    from transformers import AutoConfig

    filled = AutoConfig.for_model(kind).to_dict()
    names = ("hidden_activation", "mlp_hidden_act", "activation_function", "hidden_act")
    theirs = next((filled[name] for name in names if filled.get(name)), "silu")
    assert NAMED[USUAL.get(kind, "silu")] == NAMED[theirs]


def test_families_that_are_counted_elsewhere_are_listed_there():
    from attnbench.commands.model.families import FAMILIES as COUNTED

    assert {*KNOWN} <= {*COUNTED, *FURTHER}


@pytest.mark.parametrize("kind", sorted(UNKNOWN & {*FAMILIES}))
def test_an_unknown_feed_forward_is_said_and_not_guessed(kind, tmp_path):
    found = feeds(written(tmp_path, kind))
    assert found
    assert all(one.reason and not one.mechanism for one in found)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"intermediate_size": None}, "'intermediate_size' is missing; add it"),
        ({"hidden_act": "xielu"}, "no module here has the activation 'xielu'"),
        ({"hidden_act": 3}, "no module here has the activation 3"),
    ],
)
def test_a_size_or_an_activation_that_is_not_known_is_named(more, reason, tmp_path):
    (only,) = feeds(written(tmp_path, "llama", **more))
    assert (only.words, only.layers, only.mechanism) == ("feed-forward", 4, "")
    assert only.reason == reason


def test_layers_have_feed_forwards_of_their_own_kinds(tmp_path):
    file = written(tmp_path, "deepseek_v3", first_k_dense_replace=1, n_shared_experts=2)
    dense, experts = feeds(file)
    assert (dense.layers, dense.words) == (1, "feed-forward 32, gated silu")
    assert experts.layers == 3
    assert experts.words == "experts 2 of 4 × 16, gated silu; shared 32"
    plain = feeds(written(tmp_path, "gpt2"))
    assert [one.words for one in plain] == ["feed-forward 256, gelu_tanh"]
    assert plain[0].mechanism == (
        "feed_forward[activation=gelu_tanh,bias=True,gate=False,inner=256]"
    )


def test_layers_of_a_feed_forward_alone_are_no_layers_without_attention(tmp_path):
    file = written(tmp_path, "nemotron_h")
    assert [(k.words.partition(",")[0], k.layers, k.feeds) for k in measurable(file).kinds] == [
        ("linear", 2, False),
        ("full", 1, False),
        ("feed-forward 32", 1, True),
    ]
    assert "mlp, without attention" in [k.words for k in measurable(file, feeds=False).kinds]


@pytest.mark.long
@pytest.mark.parametrize("name", registry.FEEDS)
def test_they_keep_the_contract_of_mechanisms(name):
    rows = verify(registry.card(name))
    assert not [row for row in rows if row["result"] == "failed"]
    assert any("steps continue" in row["check"] and row["result"] == "passed" for row in rows)


@pytest.mark.skipif(
    not hasattr(torch.nn.functional, "grouped_mm"), reason="this torch has no grouped_mm"
)
@pytest.mark.parametrize(
    "options",
    [
        "number=6,used=2,inner=16",
        "number=5,used=5,inner=16,shared=16,shared_gate=True",
        "number=9,used=1,inner=8,bias=True,activation=clamped",
        "number=4,used=3,inner=16,gate=False,activation=relu2",
    ],
)
def test_grouped_experts_compute_what_single_ones_do(options):
    """Each of the tokens, some experts having none, and others several."""
    forms = ("eager", "grouped")
    one, other = (module_of(f"experts[{options}]", 24, form)[0] for form in forms)
    other.load_state_dict(one.state_dict())
    for tokens in (1, 9):
        x = torch.randn(2, tokens, 24)
        with torch.no_grad():
            torch.testing.assert_close(one(x), other(x), atol=1e-5, rtol=1e-4)


def test_random_routing_spreads_tokens_almost_evenly():
    """As the manual says; a router that sent all to a few would make layers look cheaper."""
    module, _ = module_of("experts[number=8,used=2,inner=8]", 64)
    _, chosen = module.routed(torch.randn(4096, 64))
    share = chosen.flatten().bincount(minlength=8) / chosen.numel()
    assert 0.5 / 8 < share.min() <= share.max() < 2 / 8


def test_large_weights_are_written_whole_and_in_their_own_type():
    module, _ = module_of("experts[number=4,used=1,inner=2048]", 512, dtype="bfloat16")
    assert module.up.dtype is torch.bfloat16
    assert module.up.numel() > 1 << 22
    flat = module.up.flatten()
    assert (flat != 0).float().mean() > 0.99
    assert flat.abs().max() <= 512**-0.5


def test_they_are_measured_by_name_and_listed_nowhere():
    assert not {*registry.FEEDS} & {*registry.names()}
    assert registry.is_built_in("stack(2*experts+feed_forward)")
    (chosen,) = expand("feed_forward[inner=8]")
    assert chosen.name == "feed_forward"
    assert {one.name for one in expand("@all")} == {*registry.names()}
    with pytest.raises(UnknownMechanism, match="unknown mechanism 'feed_for'"):
        expand("feed_for")


SIZE = st.integers(0, 9)
RANDOM = st.fixed_dictionaries(
    {},
    optional={
        "intermediate_size": SIZE,
        "moe_intermediate_size": SIZE,
        "num_experts": SIZE,
        "num_local_experts": SIZE,
        "n_routed_experts": SIZE,
        "num_experts_per_tok": SIZE,
        "n_shared_experts": SIZE,
        "first_k_dense_replace": SIZE,
        "mlp_only_layers": st.lists(st.integers(0, 3)) | st.just("x"),
        "shared_expert_intermediate_size": SIZE,
        "hidden_act": st.sampled_from(["silu", "gelu", "new"]),
        "mlp_bias": st.booleans() | st.just("yes"),
    },
)


@given(kind=st.sampled_from(KNOWN), sizes=RANDOM)
@settings(max_examples=150, deadline=None)
def test_every_layer_has_one_feed_forward_or_a_reason(kind, sizes, tmp_path_factory):
    file = written(tmp_path_factory.getbasetemp(), kind, **sizes)
    try:
        found = measurable(file)
    except UsageError:
        return
    if kind != "nemotron_h":
        assert sum(one.layers for one in found.kinds if one.feeds) == len([*layers(fields(file))])
    for one in (one for one in found.kinds if one.feeds):
        assert bool(one.mechanism) != bool(one.reason)
        if one.mechanism:
            module_of(one.mechanism, found.width)
