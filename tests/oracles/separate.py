"""Packages' sub-layers that depart too far to share parameters with the mechanism's own class."""

from math import log2

import torch

from attnbench.mechanisms.peers import Layer, not_multiple_reason
from attnbench.mechanisms.routing_transformer import local_heads


class Separate(Layer):
    install = "pip install --group oracles"

    def forward(self, x, mask=None):
        return self.package_layer(x)


class CompressiveTransformer(Separate):
    """Segments with a memory and a compressed memory; `losses` has one of each segment."""

    package = "compressive-transformer-pytorch"
    module = "compressive_transformer_pytorch.compressive_transformer_pytorch"
    deviation = (
        "there are no positions, the loss counts every slot, and the first training step stops the"
        " training of the keys' and values' projection"
    )
    takes_causal = True

    def layer(self, config, workload):
        return self.library.SelfAttention(
            workload.width,
            config.segment,
            config.memory,
            config.compressed,
            config.rate,
            heads=workload.heads,
        )

    def forward(self, x, mask=None):
        memories, outputs, self.losses = None, [], []
        for segment in x.split(self.config.segment, 1):
            y, memories, loss = self.package_layer(segment, memories)
            memories = tuple(memory.detach() for memory in memories)
            outputs.append(y)
            self.losses.append(loss)
        return torch.cat(outputs, 1)


class Fastformer(Separate):
    package = "fast-transformer-pytorch"
    module = "fast_transformer_pytorch.fast_transformer_pytorch"
    deviation = (
        "heads share the logit vectors and W_R, values have their own projection, k̄ averages k"
        " instead of p, and another projection follows"
    )

    def layer(self, config, workload):
        return self.library.FastAttention(
            workload.width, heads=workload.heads, dim_head=workload.head_width
        )

    def forward(self, x, mask=None):
        return self.package_layer(
            x, mask=torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        )


class LinearTransformer(Separate):
    """The linear attention of Shen et al. (arXiv:1812.01243)."""

    package = "linear-attention-transformer"
    module = "linear_attention_transformer.linear_attention_transformer"
    deviation = (
        "φ is a softmax of q over features, divided by √d, and of k over tokens,"
        " without a normaliser"
    )

    def layer(self, config, workload):
        return self.library.SelfAttention(
            workload.width, workload.heads, dim_head=workload.head_width
        )


class MemoryCompressed(Separate):
    package = "memory_compressed_attention"
    module = "memory_compressed_attention"
    deviation = (
        "keys and values share a convolution that does not mix heads, logits are scaled by 1 / √D,"
        " padding stands in front, and there is a null key even if not causal"
    )
    takes_causal = True

    def layer(self, config, workload):
        return self.library.MemoryCompressedAttention(
            workload.width,
            workload.heads,
            causal=workload.causal,
            compression_factor=config.compression,
        )


class RoutingTransformer(Separate):
    package = "routing_transformer"
    module = "routing_transformer.routing_transformer"
    deviation = (
        "queries and keys are normalised for the choice only, local heads have their own"
        " projections, and W is a power of 2 near √N unless `members` gives it"
    )

    def layer(self, config, workload):
        N = workload.seq_len
        return self.library.SelfAttention(
            workload.width,
            depth=1,
            max_seq_len=N,
            heads=workload.heads,
            local_attn_heads=local_heads(config, workload),
            window_size=members(config, N),
            local_attn_window_size=min(config.window, N),
            kmeans_ema_decay=config.decay,
            commitment_factor=config.commitment,
            rel_pos_emb=False,
        )

    def forward(self, x, mask=None):
        return self.package_layer(x)[0]

    @staticmethod
    def unsupported_reason(config, w):
        W = members(config, w.seq_len)
        if config.clusters not in (None, w.seq_len // W):
            return f"routing_transformer has N / W = {w.seq_len // W} clusters"
        return not_multiple_reason(w, W) or not_multiple_reason(w, min(config.window, w.seq_len))


def members(config, N):
    """W, at most N."""
    return min(N, config.members or 2 ** round(log2(N) / 2))


class SetTransformer(Separate):
    package = "isab-pytorch"
    module = "isab_pytorch.isab_pytorch"
    deviation = "blocks have neither residual nor feed-forward layer, and scale by the head's width"

    def layer(self, config, workload):
        D, H = workload.width, workload.heads
        layer = self.library.ISAB(dim=D, heads=H, num_latents=config.points)
        # `ISAB` itself makes all heads 64 wide
        layer.attn1, layer.attn2 = (
            self.library.Attention(D, H, dim_head=workload.head_width) for _ in range(2)
        )
        return layer

    def forward(self, x, mask=None):
        return self.package_layer(x)[0]


class Sinkhorn(Separate):
    package = "sinkhorn_transformer"
    module = "sinkhorn_transformer.sinkhorn_transformer"
    deviation = (
        "blocks are sorted by products of their mean queries and keys, noise is drawn in inference"
        " too, and the sorted values are the sorted keys"
    )

    def layer(self, config, workload):
        return self.library.SinkhornSelfAttention(
            workload.width,
            config.block,
            workload.seq_len,
            heads=workload.heads,
            non_permutative=False,
            sinkhorn_iter=config.iterations,
            temperature=config.temperature,
        )

    @staticmethod
    def unsupported_reason(config, w):
        return not_multiple_reason(w, config.block)


FORMS = {
    "compressive_transformer": CompressiveTransformer,
    "fastformer": Fastformer,
    "linear_transformer": LinearTransformer,
    "memory_compressed": MemoryCompressed,
    "routing_transformer": RoutingTransformer,
    "set_transformer": SetTransformer,
    "sinkhorn": Sinkhorn,
}
