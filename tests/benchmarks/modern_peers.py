"""Public implementations of the mechanisms of current models, which share no parameters with ours.

Every function takes N and returns a module from [B, N, D] to [B, N, D]. Those of transformers need
its release 5, and are missing where an older one is installed.
"""

import importlib
import warnings

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS = 256, 16
HEAD_WIDTH = WIDTH // HEADS
KV_HEADS, WINDOW = 4, 4096  # the defaults of our mechanisms


def quietly(module, name):
    """Imports a name from a package whose import warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(importlib.import_module(module), name)


class Called(nn.Module):
    """A module with the call that it needs."""

    def __init__(self, inner, call):
        super().__init__()
        self.inner, self.call = inner, call

    def forward(self, x):
        return self.call(self.inner, x)


class Grouped(nn.Module):
    """Projections with fewer heads of keys, and attention as transformers computes it."""

    def __init__(self, attention, kv_heads):
        super().__init__()
        narrow = kv_heads * HEAD_WIDTH
        widths = (WIDTH, narrow, narrow)
        self.projections = nn.ModuleList(nn.Linear(WIDTH, width, bias=False) for width in widths)
        self.output, self.attention = nn.Linear(WIDTH, WIDTH, bias=False), attention

    def forward(self, x):
        heads = (m(x).unflatten(-1, (-1, HEAD_WIDTH)).transpose(1, 2) for m in self.projections)
        return self.output(self.attention(*heads).transpose(1, 2).flatten(2))


def repeated(n):
    def attention(q, k, v):
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v)

    return Grouped(attention, KV_HEADS)


class Repeated(Grouped):
    """A step of grouped-query attention that copies the keys and values of its cache."""

    def __init__(self, n):
        super().__init__(F.scaled_dot_product_attention, KV_HEADS)
        for name in ("k", "v"):
            self.register_buffer(name, torch.randn(1, KV_HEADS, n, HEAD_WIDTH))

    def forward(self, x):
        q, *new = (m(x).unflatten(-1, (-1, HEAD_WIDTH)).transpose(1, 2) for m in self.projections)
        for kept, token in zip((self.k, self.v), new, strict=True):
            kept[:, :, -1:] = token
        k, v = (kept.repeat_interleave(HEADS // KV_HEADS, 1) for kept in (self.k, self.v))
        return self.output(self.attention(q, k, v).transpose(1, 2).flatten(2))


def masked_window(n):
    i = torch.arange(n)
    allowed = (i <= i[:, None]) & (i[:, None] - i < WINDOW)
    attention = F.scaled_dot_product_attention
    return Grouped(lambda q, k, v: attention(q, k, v, attn_mask=allowed), HEADS)


def transformers_layer(model, name, call, **sizes):
    """A layer of one model in transformers; `name` is that of its classes."""
    package = f"transformers.models.{model}"
    config = quietly(f"{package}.configuration_{model}", f"{name[0]}Config")(**sizes)
    return Called(quietly(f"{package}.modeling_{model}", name[1])(config, 0), call)


def qwen3_next(n):
    return transformers_layer(
        "qwen3_next",
        ("Qwen3Next", "Qwen3NextGatedDeltaNet"),
        lambda m, x: m(x),
        hidden_size=WIDTH,
        linear_num_key_heads=HEADS,
        linear_num_value_heads=HEADS,
        linear_key_head_dim=HEAD_WIDTH,
        linear_value_head_dim=2 * HEAD_WIDTH,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
    )


def mamba2_mixer(n):
    return transformers_layer(
        "mamba2",
        ("Mamba2", "Mamba2Mixer"),
        lambda m, x: m(x),
        hidden_size=WIDTH,
        num_heads=2 * WIDTH // 64,
        head_dim=64,
        state_size=128,
        n_groups=1,
        num_hidden_layers=1,
    )


def deepseek_v3(n):
    rotation = torch.ones(1, n, HEAD_WIDTH // 2), torch.zeros(1, n, HEAD_WIDTH // 2)
    return transformers_layer(
        "deepseek_v3",
        ("DeepseekV3", "DeepseekV3Attention"),
        lambda m, x: m(x, rotation, None, is_causal=False)[0],
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        q_lora_rank=None,
        kv_lora_rank=4 * HEAD_WIDTH,
        qk_nope_head_dim=HEAD_WIDTH,
        qk_rope_head_dim=HEAD_WIDTH // 2,
        v_head_dim=HEAD_WIDTH,
        num_hidden_layers=1,
        attn_implementation="sdpa",
    )


def fnet(n):
    package = "transformers.models.fnet"
    config = quietly(f"{package}.configuration_fnet", "FNetConfig")(hidden_size=WIDTH)
    inner = quietly(f"{package}.modeling_fnet", "FNetBasicFourierTransform")(config)
    return Called(inner, lambda m, x: m(x)[0])


class Retained(nn.Module):
    """Projections, GroupNorm and gate around a core, with values twice as wide as keys."""

    def __init__(self, core):
        super().__init__()
        widths = (WIDTH, WIDTH, 2 * WIDTH, 2 * WIDTH)
        self.projections = nn.ModuleList(nn.Linear(WIDTH, width, bias=False) for width in widths)
        self.output, self.core = nn.Linear(2 * WIDTH, WIDTH, bias=False), core

    def forward(self, x):
        *heads, gate = (m(x) for m in self.projections)
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in heads)
        o = self.core(q, k, v).transpose(1, 2)
        return self.output(F.layer_norm(o, o.shape[-1:]).flatten(2) * F.silu(gate))


def yet_another_retnet(n):
    chunkwise = quietly("yet_another_retnet.retention", "retention_chunkwise")

    def core(q, k, v):
        state, outputs = None, []
        for part in zip(*(t.split(128, 2) for t in (q, k, v)), strict=True):
            o, state = chunkwise(*part, prev_state=state)
            outputs.append(o)
        return torch.cat(outputs, 2)

    return Retained(core)


def modern_pairs():
    """(our mechanism, public implementation, function that builds it)."""
    return (
        ("grouped_query", "repeat_interleave and scaled_dot_product_attention", repeated),
        ("sliding_window", "scaled_dot_product_attention with a mask", masked_window),
        ("latent", "transformers DeepseekV3Attention", deepseek_v3),
        ("fnet", "transformers FNetBasicFourierTransform", fnet),
        ("retention", "yet-another-retnet", yet_another_retnet),
        ("gated_delta_net", "transformers Qwen3NextGatedDeltaNet", qwen3_next),
        ("mamba2", "transformers Mamba2Mixer", mamba2_mixer),
    )


def modern_steps():
    """The same for decoding: N tokens of context, and a module from [1, 1, D] to [1, 1, D]."""
    return (("grouped_query", "repeat_interleave of the cache", Repeated),)
