"""Attention of public packages as layers of [B, N, D], each wrapped in a few lines."""

from fast_transformer_pytorch.fast_transformer_pytorch import FastAttention
from isab_pytorch import ISAB
from linear_attention_transformer.linear_attention_transformer import SelfAttention as Linear
from linformer import LinformerSelfAttention
from local_attention import LocalMHA
from memory_compressed_attention import MemoryCompressedAttention
from nystrom_attention import NystromAttention
from performer_pytorch import SelfAttention as Performer
from reformer_pytorch import LSHSelfAttention
from sinkhorn_transformer.sinkhorn_transformer import SinkhornSelfAttention
from yet_another_retnet.retention import MultiScaleRetention


class Fast(FastAttention):
    def __init__(self, width, heads, seq_len):
        super().__init__(width, heads=heads, dim_head=width // heads, max_seq_len=seq_len)

    def forward(self, x):
        return super().forward(x, mask=x.new_ones(x.shape[:2], dtype=bool))


class SetAttention(ISAB):
    def __init__(self, width, heads):
        super().__init__(dim=width, heads=heads, num_latents=16)


def linear_attention(width, heads):
    return Linear(width, heads=heads, causal=False)


def linformer(width, heads, seq_len):
    return LinformerSelfAttention(width, seq_len, k=min(256, seq_len), heads=heads)


def local(width, heads):
    return LocalMHA(dim=width, heads=heads, dim_head=width // heads, window_size=64, causal=False)


def memory_compressed(width, heads):
    return MemoryCompressedAttention(dim=width, heads=heads, causal=False)


def nystrom(width, heads):
    return NystromAttention(width, heads=heads, dim_head=width // heads, num_landmarks=64)


def performer(width, heads):
    return Performer(width, heads=heads, dim_head=width // heads)


def reformer(width, heads):
    return LSHSelfAttention(width, heads=heads, bucket_size=64, n_hashes=4)


def sinkhorn(width, heads, seq_len):
    return SinkhornSelfAttention(width, bucket_size=64, max_seq_len=seq_len, heads=heads)


class Retention(MultiScaleRetention):
    def __init__(self, width, heads):
        super().__init__(embed_dim=width, num_heads=heads)

    def forward(self, x):
        return self.forward_parallel(x, x, x)
