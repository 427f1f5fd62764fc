"""Public implementations to compare with: one function each, configured as documented.

Every function takes N and returns a module from [B, N, D] to [B, N, D], D = 256 with 16 heads, in
the sizes of Table 9's MIND column where they apply. A missing package raises ImportError.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS = 256, 16


class Wrapped(nn.Module):
    """A module with the call that it needs; `output` adds W_O where the module has none."""

    def __init__(self, inner, call, output=True):
        super().__init__()
        self.inner, self.call = inner, call
        self.output = nn.Linear(WIDTH, WIDTH, bias=False) if output else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.call(self.inner, x))


class RawAttention(nn.Module):
    """Four projections around torch's fused attention, and nothing else."""

    def __init__(self):
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (m(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for m in self.projections[:3])
        return self.projections[3](
            F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        )


def raw_attention(n):
    return RawAttention()


def multihead_attention(n):
    inner = nn.MultiheadAttention(WIDTH, HEADS, bias=False, batch_first=True)
    return Wrapped(inner, lambda m, x: m(x, x, x, need_weights=False)[0], output=False)


def fast_transformer_pytorch(n):
    from fast_transformer_pytorch.fast_transformer_pytorch import FastAttention

    inner = FastAttention(WIDTH, heads=HEADS, dim_head=WIDTH // HEADS)

    def call(m, x):
        return m(x, mask=torch.ones(x.shape[:2], dtype=torch.bool, device=x.device))

    return Wrapped(inner, call, output=False)


def linformer(n):
    from linformer import LinformerSelfAttention

    return LinformerSelfAttention(WIDTH, n, k=16, heads=HEADS)


def linear_attention_transformer(n):
    from linear_attention_transformer.linear_attention_transformer import SelfAttention

    return SelfAttention(WIDTH, HEADS, dim_head=WIDTH // HEADS)


def transformers_longformer(n):
    from transformers.models.longformer.modeling_longformer import (
        LongformerConfig,
        LongformerSelfAttention,
    )

    config = LongformerConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        attention_window=[16],
        attention_probs_dropout_prob=0.0,
    )
    inner = LongformerSelfAttention(config, 0)

    def call(m, x):
        mask = x.new_zeros(x.shape[:2])
        mask[:, :16] = 10_000.0
        return m(
            x,
            attention_mask=mask,
            is_index_masked=mask < 0,
            is_index_global_attn=mask > 0,
            is_global_attn=True,
        )[0]

    return Wrapped(inner, call)


def transformers_bigbird(n):
    from transformers.models.big_bird.modeling_big_bird import (
        BigBirdBlockSparseAttention,
        BigBirdConfig,
        BigBirdModel,
    )

    config = BigBirdConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        block_size=8,
        num_random_blocks=2,
        max_position_embeddings=n,
        use_bias=False,
    )
    inner = BigBirdBlockSparseAttention(config, seed=0)

    def call(m, x):
        block, band, rows, columns = BigBirdModel.create_masks_for_block_sparse_attn(
            x.new_ones(x.shape[:2]), 8
        )
        return m(
            x,
            band_mask=band,
            from_mask=rows,
            to_mask=columns,
            from_blocked_mask=block,
            to_blocked_mask=block,
        )[0]

    return Wrapped(inner, call)


def pairs():
    """(our mechanism, public implementation, function that builds it)."""
    return (
        ("transformer", "raw scaled_dot_product_attention", raw_attention),
        ("transformer", "torch.nn.MultiheadAttention", multihead_attention),
        ("fastformer", "fast-transformer-pytorch", fast_transformer_pytorch),
        ("longformer", "transformers Longformer", transformers_longformer),
        ("bigbird", "transformers BigBird", transformers_bigbird),
        ("linformer", "linformer", linformer),
        ("linear_transformer", "linear-attention-transformer", linear_attention_transformer),
    )
