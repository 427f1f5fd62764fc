"""Plain functions that packages publish, as kernels to judge; all of them are right."""

from inspect import unwrap

import torch
from transformers.models.qwen3_next import modeling_qwen3_next as qwen

from tests.oracles.plain import naive

# a wrapper calls kernels by Triton wherever they can be imported, as with a torch for CUDA
chunked_rule, recurrent_rule = map(
    unwrap, (qwen.torch_chunk_gated_delta_rule, qwen.torch_recurrent_gated_delta_rule)
)


def recurrent_delta(q, k, v, g, beta):
    return naive("gated_delta_rule").naive_recurrent_gated_delta_rule(q, k, v, beta, g)[0]


def chunked_delta(q, k, v, g, beta):
    return naive("gated_delta_rule").naive_chunk_gated_delta_rule(q, k, v, g, beta)[0]


def recurrent_kda(q, k, v, g, beta):
    return naive("kda").naive_recurrent_kda(q, k, v, g, beta)[0]


def chunked_kda(q, k, v, g, beta):
    return naive("kda").naive_chunk_kda(q, k, v, g, beta)[0]


def recurrent_simple(q, k, v, g):
    return naive("simple_gla").naive_recurrent_simple_gla(q, k, v, g)[0]


def chunked_simple(q, k, v, g):
    return naive("simple_gla").naive_chunk_simple_gla(q, k, v, g)


def all_pairs(q, k, v, g):
    return naive("simple_gla").naive_parallel_simple_gla(q, k, v, g)[0]


def recurrent_gla(q, k, v, gk):
    return naive("gla").naive_recurrent_gla(q, k, v, gk)[0]


def forgetting(q, k, v, g):
    return naive("forgetting_attn").naive_forgetting_attn(q, k, v, g)


def chunked_of_qwen(q, k, v, g, beta):
    """[B, N, H, d], which it changes to heads first by itself."""
    q = q * q.shape[-1] ** 0.5
    return chunked_rule(q, k, v, g=g, beta=beta)[0]


def recurrent_of_qwen(q, k, v, g, beta):
    q = q * q.shape[-1] ** 0.5
    return recurrent_rule(q, k, v, g=g, beta=beta, initial_state=None, output_final_state=False)[0]


def of_torch(query, key, value, attn_mask=None, is_causal=False):
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=is_causal
    )
