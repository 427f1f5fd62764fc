"""Public implementations of the mechanisms in the survey, in the sizes of the presets.

Every function takes N and returns a module from [B, N, D] to [B, N, D]; see `peers`.
"""

import warnings

import torch
from torch import nn

from tests.benchmarks.peers import HEADS, WIDTH, Wrapped

HEAD_WIDTH = WIDTH // HEADS


def quietly(module, name):
    """Imports a name from a package whose import warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(__import__(module, fromlist=[name]), name)


class Projected(nn.Module):
    """Three projections, `core` on [B, H, N, d], and the output projection."""

    def __init__(self, core):
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.core = core

    def forward(self, x):
        q, k, v = (m(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for m in self.projections[:3])
        return self.projections[3](self.core(q, k, v).transpose(1, 2).flatten(2))


def axial_attention(n):
    inner = quietly("axial_attention", "AxialAttention")(
        dim=WIDTH, heads=HEADS, num_dimensions=2, dim_index=-1
    )
    side = 2 ** round(torch.tensor(n).log2().item() / 2)
    return Wrapped(inner, lambda m, x: m(x.unflatten(1, (-1, side))).flatten(1, 2), output=False)


def memory_compressed_attention(n):
    package = "memory_compressed_attention.memory_compressed_attention"
    return quietly(package, "MemoryCompressedAttention")(WIDTH, HEADS, causal=False)


def local_attention(n):
    core = quietly("local_attention", "LocalAttention")(
        window_size=20,
        look_backward=0,
        look_forward=0,
        autopad=True,
        use_rotary_pos_emb=False,
        dim=HEAD_WIDTH,
    )
    return Projected(core)


def local_attention_backward(n):
    core = quietly("local_attention", "LocalAttention")(
        window_size=256, look_backward=1, autopad=True, use_rotary_pos_emb=False, dim=HEAD_WIDTH
    )
    return Projected(core)


def isab(n):
    inner = quietly("isab_pytorch", "ISAB")(dim=WIDTH, heads=HEADS, num_latents=16)

    def call(m, x):
        y = m(x)
        return y[0] if isinstance(y, tuple) else y

    return Wrapped(inner, call, output=False)


def transfo_xl(n):
    package = "transformers.models.deprecated.transfo_xl.modeling_transfo_xl"
    inner = quietly(package, "RelPartialLearnableMultiHeadAttn")(HEADS, WIDTH, HEAD_WIDTH, 0.0)
    for bias in (inner.r_w_bias, inner.r_r_bias):
        nn.init.normal_(bias)
    positions = quietly(package, "PositionalEmbedding")(WIDTH)

    def call(m, x, segment=128, memory=128):
        x, outputs = x.transpose(0, 1), []
        for start in range(0, len(x), segment):
            now, old = x[start : start + segment], x[max(0, start - memory) : start].detach()
            keys = len(old) + len(now)
            r = positions(torch.arange(keys - 1, -1, -1.0, device=x.device))
            future = torch.ones(len(now), keys, device=x.device).triu(1 + len(old))
            future = future.bool()[..., None]
            outputs.append(m(now, r, attn_mask=future, mems=old)[0])
        return torch.cat(outputs).transpose(0, 1)

    return Wrapped(inner, call, output=False)


def compressive_transformer_pytorch(n):
    package = "compressive_transformer_pytorch.compressive_transformer_pytorch"
    inner = quietly(package, "SelfAttention")(WIDTH, 128, 128, 128, 2, heads=HEADS)

    def call(m, x):
        memories, outputs = None, []
        for now in x.split(128, 1):
            y, memories, _ = m(now, memories)
            memories = tuple(memory.detach() for memory in memories)
            outputs.append(y)
        return torch.cat(outputs, 1)

    return Wrapped(inner, call, output=False)


def reformer_pytorch(n):
    inner = quietly("reformer_pytorch.reformer_pytorch", "LSHSelfAttention")(
        WIDTH, heads=HEADS, bucket_size=64, n_hashes=2
    )
    return Wrapped(inner, lambda m, x: m(x), output=False)


def routing_transformer(n):
    members = 2 ** round(torch.tensor(n).log2().item() / 2)
    inner = quietly("routing_transformer.routing_transformer", "SelfAttention")(
        WIDTH, 1, n, HEADS, HEADS // 2, members, local_attn_window_size=256, rel_pos_emb=False
    )
    return Wrapped(inner, lambda m, x: m(x)[0], output=False)


def sinkhorn_transformer(n):
    return quietly("sinkhorn_transformer.sinkhorn_transformer", "SinkhornSelfAttention")(
        WIDTH, 64, n, heads=HEADS
    )


def performer_pytorch(n):
    return quietly("performer_pytorch.performer_pytorch", "SelfAttention")(
        WIDTH, heads=HEADS, dim_head=HEAD_WIDTH, nb_features=64
    )


def nystrom_attention(n):
    return quietly("nystrom_attention", "NystromAttention")(WIDTH, HEAD_WIDTH, HEADS, 64)


def transformers_nystromformer(n):
    package = "transformers.models.nystromformer.modeling_nystromformer"
    config = quietly(package, "NystromformerConfig")(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_landmarks=64,
        segment_means_seq_len=n,
        conv_kernel_size=33,
        attention_probs_dropout_prob=0.0,
    )
    inner = quietly(package, "NystromformerSelfAttention")(config)
    return Wrapped(inner, lambda m, x: m(x)[0])


def entmax(n):
    bisect = quietly("entmax", "entmax_bisect")

    class Core(nn.Module):
        def __init__(self):
            super().__init__()
            self.alpha = nn.Parameter(torch.full((1, HEADS, 1, 1), 1.5))

        def forward(self, q, k, v):
            return bisect(q @ k.mT / HEAD_WIDTH**0.5, self.alpha, dim=-1) @ v

    return Projected(Core())


def survey_pairs():
    """(our mechanism, public implementation, function that builds it)."""
    return (
        ("axial", "axial_attention", axial_attention),
        ("memory_compressed", "memory_compressed_attention", memory_compressed_attention),
        ("local", "local-attention", local_attention),
        ("image_transformer", "local-attention, one block back", local_attention_backward),
        ("set_transformer", "isab-pytorch", isab),
        ("transformer_xl", "transformers Transformer-XL", transfo_xl),
        (
            "compressive_transformer",
            "compressive-transformer-pytorch",
            compressive_transformer_pytorch,
        ),
        ("reformer", "reformer-pytorch", reformer_pytorch),
        ("routing_transformer", "routing_transformer", routing_transformer),
        ("sinkhorn", "sinkhorn_transformer", sinkhorn_transformer),
        ("performer", "performer-pytorch", performer_pytorch),
        ("nystromformer", "nystrom-attention", nystrom_attention),
        ("nystromformer", "transformers Nyströmformer", transformers_nystromformer),
        ("adaptively_sparse", "entmax", entmax),
    )
