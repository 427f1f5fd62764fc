"""Three kernels that claim to be softmax attention: q, k, v [B, H, N, d] -> [B, H, N, d]."""

import torch
from torch.nn.functional import scaled_dot_product_attention


def fused(q, k, v, causal=False):
    """It is right."""
    return scaled_dot_product_attention(q, k, v, is_causal=causal)


def without_scale(q, k, v, causal=False):
    """It is wrong at every size: the scores are not divided by the root of d."""
    return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=1.0)


def first_thousand(q, k, v):
    """It is wrong beyond 1,024 tokens, where later keys are dropped."""
    scores = q @ k[:, :, :1024].transpose(-1, -2) / q.shape[-1] ** 0.5
    return torch.softmax(scores, -1) @ v[:, :, :1024]
