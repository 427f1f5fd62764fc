"""Kernels as users write them, each with the names of a core's tensors; most wrong in one way."""

import torch
from torch.nn import functional as F

from attnbench.attention.kernels.recurrence import decay_rule, delta_rule


def delta(q, k, v, g, beta):
    """Right: in chunks."""
    S = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    return delta_rule(S, g, q, k, v, beta, 32)[0]


def tokens_first(q, k, v, g, beta, scale=None):
    """Right: [B, N, H, d], and a scale that must not scale again."""
    o = delta(*(x.transpose(1, 2) for x in (q, k, v, g, beta)))
    return o.transpose(1, 2) * scale, None


def rounded_beta(q, k, v, g, beta):
    return delta(q, k, v, g, beta.bfloat16().to(beta))


def decays_near_one_are_one(q, k, v, g, beta):
    return delta(q, k, v, torch.where(g > -0.002, 0.0, g), beta)


def linear_g(q, k, v, g, beta):
    return delta(q, k, v, (1 + g).clamp(min=1e-6).log(), beta)


def state_in_bfloat16(q, k, v, g, beta):
    S, outputs = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1]), []
    for part in zip(*(x.split(32, 2) for x in (g, q, k, v, beta)), strict=True):
        o, S = delta_rule(S.bfloat16().to(q), *part, 32)
        outputs.append(o)
    return torch.cat(outputs, 2)


def last_chunk_dropped(q, k, v, g, beta):
    whole = q.shape[2] // 32 * 32
    o = delta(*(x[:, :, : whole or None] for x in (q, k, v, g, beta)))
    return F.pad(o, (0, 0, 0, q.shape[2] - o.shape[2]))


def half_the_heads(q, k, v, g, beta):
    half = delta(*(x[:, : q.shape[1] // 2] for x in (q, k, v, g, beta)))
    return torch.cat([half, half], 1)


def no_gradient_of_keys(q, k, v, g, beta):
    return delta(q, k.detach(), v, g, beta)


def no_gradient_of_decays(q, k, v, g, beta):
    return delta(q, k, v, g.detach(), beta)


def forward_only(q, k, v, g, beta):
    """Right, without a backward pass."""
    with torch.no_grad():
        return delta(q, k, v, g, beta)


def unbounded(q, k, v, g):
    """Gated linear attention by e^G and e^−G, which overflows."""
    G = g.cumsum(2)
    A = (q * G.exp()) @ (k * (-G).exp()).mT
    return A.tril() @ v


def gated(q, k, v, g):
    """Right: gated linear attention in chunks."""
    return decay_rule(q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1]), g, q, k, v, 16)[0]


def faded(q, k, v, g):
    """Right: one decay for each token of each head, which has its own q and k."""
    S = q.new_zeros(*q.shape[:2], q.shape[-1], 1, v.shape[-1])
    return decay_rule(S, g, q, k, v, 32)[0]


def softmax(q, k, v, is_causal):
    """Right, causal or not."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


def only_whole_tensors(q, k, v):
    """Right, and takes no views."""
    if not k.is_contiguous():
        raise ValueError("k is not contiguous")
    return F.scaled_dot_product_attention(q, k, v)


def always_causal(q, k, v):
    """Right, and causal without being told."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def values_in_tf32(q, k, v, causal=False):
    """Values with the ten bits of TF32, which are those of float16."""
    return F.scaled_dot_product_attention(q, k, v.half().to(v.dtype), is_causal=causal)


def without_scale(q, k, v, causal=False):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=1.0)


def by_mask(q, k, v, allowed):
    """Softmax attention where `allowed` [N, N] says."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)


def one_ahead(q, k, v):
    N = q.shape[2]
    return by_mask(q, k, v, q.new_ones(N, N).tril(1).bool())


def without_diagonal(q, k, v):
    N = q.shape[2]
    earlier = q.new_ones(N, N).tril(-1)
    earlier[0, 0] = 1
    return by_mask(q, k, v, earlier.bool())


def without_maximum(q, k, v, is_causal):
    """Exponentials of the logits themselves, which overflow."""
    E = (q @ k.mT / q.shape[-1] ** 0.5).exp()
    E = E.tril() if is_causal else E
    return E / E.sum(-1, keepdim=True) @ v


def windowed(q, k, v, window, more=0):
    """Right: a window of this many earlier tokens."""
    N = q.shape[2]
    seen = q.new_ones(N, N).tril().triu(1 - window - more)
    return by_mask(q, k, v, seen.bool())


def window_off_by_one(q, k, v, window):
    return windowed(q, k, v, window, more=1)


def shortened(q, k, v, E, F):
    """Right: Linformer with its parameters [R, N]."""
    return always_whole(q, E @ k, F @ v)


def fixed(q, k, v, E, F):
    return shortened(q, k, v, E.detach(), F)


def always_whole(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def raises(q, k, v):
    raise RuntimeError("no kernel for this card\nand more")


def not_a_number(q, k, v):
    return always_causal(q, k, v) * float("nan")


def shorter(q, k, v):
    return always_causal(q, k, v)[:, :, 1:]


def listed(q, k, v):
    return [v]


def other_names(q, k, v, decay):
    return v
