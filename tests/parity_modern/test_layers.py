"""Layers of today's models in transformers, with their weights in ours: outputs and gradients."""

import warnings

import pytest
import torch

from attnbench.records import Level, Workload
from attnbench.registry import card

D, H, N = 32, 4, 70
W = Workload(batch=2, seq_len=N, width=D, heads=H, level=Level.ATTENTION, causal=True)
pytestmark = pytest.mark.filterwarnings("ignore")


def imported(module, *names):
    """Names of a module of transformers, whose import warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = __import__(f"transformers.models.{module}", fromlist=names)
    return [getattr(found, name) for name in names]


def ours(name, form, weights, **options):
    """A form of ours with these parameters."""
    mechanism = card(name)
    module = mechanism.forms[form](mechanism.config(**options), W)
    module.load_state_dict({key: value.detach().clone() for key, value in weights.items()})
    return module


def compare(module, call):
    """Outputs and gradients of x, of ours and of their call, on random tokens."""
    torch.manual_seed(1)
    x, weights = torch.randn(2, W.batch, N, D)
    results = []
    for attention in (module, call):
        given = x.clone().requires_grad_()
        y = attention(given)
        results.append((y, torch.autograd.grad((y * weights).sum(), given)[0]))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def without_rotation(width):
    """Cosines and sines that rotate nothing."""
    return torch.ones(W.batch, N, width), torch.zeros(W.batch, N, width)


def causal_bias(window=N):
    """0 where a token may attend, very low elsewhere, [1, 1, N, N]."""
    i = torch.arange(N)
    allowed = (i <= i[:, None]) & (i[:, None] - i < window)
    return torch.zeros(1, 1, N, N).masked_fill(~allowed, torch.finfo(torch.float32).min)


@pytest.mark.parametrize("form", card("gated_delta_net").forms)
@pytest.mark.parametrize("expand", [1, 2])
def test_gated_delta_net_of_qwen3_next(form, expand):
    config_of, layer = imported("qwen3_next.configuration_qwen3_next", "Qwen3NextConfig") + (
        imported("qwen3_next.modeling_qwen3_next", "Qwen3NextGatedDeltaNet")
    )
    d = D // H
    config = config_of(
        hidden_size=D,
        linear_num_key_heads=H,
        linear_num_value_heads=H,
        linear_key_head_dim=d,
        linear_value_head_dim=expand * d,
        linear_conv_kernel_dim=4,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
    )
    torch.manual_seed(0)
    theirs = layer(config, 0)
    torch.nn.init.uniform_(theirs.dt_bias, -3, 1)
    # of each head in turn, theirs has q, k, v and the gate, then β and α
    q, k, v, gate = theirs.in_proj_qkvz.weight.view(H, -1, D).split(
        [d, d, expand * d, expand * d], 1
    )
    beta, alpha = theirs.in_proj_ba.weight.view(H, 2, D).unbind(1)
    weights = {
        "A": theirs.A_log,
        "b": theirs.dt_bias,
        "mix.weight": torch.cat([t.flatten(0, 1) for t in (q, k, v)]),
        "taps": theirs.conv1d.weight[:, 0].T,
        "rates.weight": torch.cat([beta, alpha]),
        "gate.weight": gate.flatten(0, 1),
        "norm.weight": theirs.norm.weight,
        "output.weight": theirs.out_proj.weight,
    }
    compare(ours("gated_delta_net", form, weights, expand=expand), lambda x: theirs(x))


@pytest.mark.parametrize("form", card("mamba2").forms)
@pytest.mark.parametrize("groups", [1, 2])
def test_mamba2(form, groups):
    config_of, mixer = imported("mamba2.configuration_mamba2", "Mamba2Config") + (
        imported("mamba2.modeling_mamba2", "Mamba2Mixer")
    )
    config = config_of(
        hidden_size=D,
        expand=2,
        head_dim=16,
        num_heads=4,
        state_size=12,
        n_groups=groups,
        conv_kernel=4,
        chunk_size=16,
        num_hidden_layers=1,
    )
    torch.manual_seed(0)
    theirs = mixer(config, 0)
    torch.nn.init.uniform_(theirs.dt_bias, -3, 1)
    weights = {
        "A": theirs.A_log,
        "beta": theirs.dt_bias,
        "skip": theirs.D,
        "mix.weight": theirs.in_proj.weight,
        "taps": theirs.conv1d.weight[:, 0].T,
        "taps_bias": theirs.conv1d.bias,
        "scales": theirs.norm.weight,
        "output.weight": theirs.out_proj.weight,
    }
    options = {"head_width": 16, "state": 12, "groups": groups, "chunk": 32}
    compare(ours("mamba2", form, weights, **options), lambda x: first(theirs(x)))


def first(output):
    return output[0] if isinstance(output, tuple) else output


@pytest.mark.parametrize("form", card("latent").forms)
@pytest.mark.parametrize("query_rank", [None, 12])
def test_latent_attention_of_deepseek_v3(form, query_rank):
    config_of, layer = imported("deepseek_v3.configuration_deepseek_v3", "DeepseekV3Config") + (
        imported("deepseek_v3.modeling_deepseek_v3", "DeepseekV3Attention")
    )
    config = config_of(
        hidden_size=D,
        num_attention_heads=H,
        num_key_value_heads=H,
        q_lora_rank=query_rank,
        kv_lora_rank=10,
        qk_nope_head_dim=D // H,
        qk_rope_head_dim=6,
        v_head_dim=D // H,
        num_hidden_layers=1,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    theirs = layer(config, 0)
    weights = {
        "up.weight": theirs.kv_b_proj.weight,
        "down.weight": theirs.kv_a_proj_with_mqa.weight,
        "norm.weight": theirs.kv_a_layernorm.weight,
        "output.weight": theirs.o_proj.weight,
    }
    if query_rank is None:
        weights["query.weight"] = theirs.q_proj.weight
    else:
        parts = (theirs.q_a_proj, theirs.q_a_layernorm, theirs.q_b_proj)
        weights |= {f"query.{i}.weight": part.weight for i, part in enumerate(parts)}
    module = ours("latent", form, weights, kv_rank=10, query_rank=query_rank, rope=6)
    compare(module, lambda x: theirs(x, without_rotation(6), causal_bias())[0])


@pytest.mark.parametrize("form", ["eager", "sdpa", "repeat"])
def test_grouped_query_attention_of_llama(form):
    config_of, layer = imported("llama.configuration_llama", "LlamaConfig") + (
        imported("llama.modeling_llama", "LlamaAttention")
    )
    config = config_of(
        hidden_size=D,
        num_attention_heads=H,
        num_key_value_heads=2,
        num_hidden_layers=1,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    theirs = layer(config, 0)
    module = ours("grouped_query", form, projections(theirs), kv_heads=2)
    compare(module, lambda x: theirs(x, without_rotation(D // H), causal_bias())[0])


def projections(theirs):
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}
    return {f"{ours}.weight": getattr(theirs, name).weight for ours, name in names.items()}


@pytest.mark.parametrize("form", card("sliding_window").forms)
def test_sliding_window_of_mistral(form):
    config_of, layer = imported("mistral.configuration_mistral", "MistralConfig") + (
        imported("mistral.modeling_mistral", "MistralAttention")
    )
    from transformers.masking_utils import sliding_window_causal_mask_function

    config = config_of(
        hidden_size=D,
        num_attention_heads=H,
        num_key_value_heads=2,
        sliding_window=9,
        num_hidden_layers=1,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    theirs = layer(config, 0)
    usable = sliding_window_causal_mask_function(9)
    i = torch.arange(N)
    allowed = usable(0, 0, i[:, None], i[None])
    assert allowed.equal(causal_bias(9)[0, 0] == 0)  # the window counts the token itself
    module = ours("sliding_window", form, projections(theirs), window=9, kv_heads=2)
    compare(module, lambda x: theirs(x, without_rotation(D // H), causal_bias(9))[0])


@pytest.mark.parametrize("form", card("sliding_window").forms)
def test_sink_logits_of_gpt_oss(form):
    config_of, layer = imported("gpt_oss.configuration_gpt_oss", "GptOssConfig") + (
        imported("gpt_oss.modeling_gpt_oss", "GptOssAttention")
    )
    config = config_of(
        hidden_size=D,
        num_attention_heads=H,
        num_key_value_heads=2,
        head_dim=D // H,
        sliding_window=9,
        num_hidden_layers=1,
        layer_types=["sliding_attention"],
        attention_bias=False,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    theirs = layer(config, 0)
    torch.nn.init.normal_(theirs.sinks)
    weights = projections(theirs) | {"sink": theirs.sinks}
    module = ours("sliding_window", form, weights, window=9, kv_heads=2, sink_logit=True)
    width = D // H // 2  # it rotates halves by as many angles
    compare(module, lambda x: theirs(x, without_rotation(width), causal_bias(9))[0])


@pytest.mark.parametrize("form", card("fnet").forms)
def test_fnet(form):
    config_of, layer = imported("fnet.configuration_fnet", "FNetConfig") + (
        imported("fnet.modeling_fnet", "FNetBasicFourierTransform")
    )
    theirs = layer(config_of(hidden_size=D))
    mechanism = card("fnet")
    module = mechanism.forms[form](mechanism.config(), W)
    compare(module, lambda x: theirs(x)[0])
