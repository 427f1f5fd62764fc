"""Layers of earlier models.

They end before the output projection, which is added, except Transformer-XL's: this is XLNet's in
one direction, without biases, residual and norm. Longformer computes softmax in float32, and
Nyströmformer's identity matrix is float32.
"""

from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from attnbench.mechanisms import bigbird, longformer, nystromformer, reformer, transformer_xl
from attnbench.mechanisms.peers import not_multiple_reason
from attnbench.mechanisms.peers.transformers.sublayer import Sublayer
from attnbench.mechanisms.reformer import factors
from attnbench.records import Workload

GLOBAL = 10_000.0  # Longformer's mask: global above 0, padding below 0


class Longformer(Sublayer, longformer.Longformer):
    module = "transformers.models.longformer.modeling_longformer"
    takes_padding = True
    tolerance = 1e-5

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        sizes = self.library.LongformerConfig(
            hidden_size=workload.width,
            num_attention_heads=workload.heads,
            attention_window=[config.window],
            attention_probs_dropout_prob=0.0,
        )
        layer = self.library.LongformerSelfAttention(sizes, layer_id=0)
        for name in ("query", "key", "value"):
            own = getattr(self, name)
            setattr(layer, name, own)
            setattr(layer, f"{name}_global", getattr(self, f"{name}_global", own))
        return layer

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        kinds = x.new_zeros(x.shape[:2])
        kinds[:, : self.config.global_tokens] = GLOBAL
        if mask is not None:
            kinds = kinds.masked_fill(~mask, -GLOBAL)
        y, *_ = self.package_layer(
            x,
            attention_mask=kinds,
            is_index_masked=kinds < 0,
            is_index_global_attn=kinds > 0,
            is_global_attn=self.config.global_tokens > 0,
        )
        return self.output(y)

    @staticmethod
    def unsupported_reason(config: Any, w: Workload) -> str | None:
        if config.dilation > 1:
            return "transformers' Longformer has no dilation"
        return not_multiple_reason(w, config.window, config.global_tokens)


class BigBird(Sublayer, bigbird.BigBird):
    module = "transformers.models.big_bird.modeling_big_bird"
    deviation = (
        "its global blocks are the first and the last, its random blocks come from a part of the"
        " sequence, and in inference all of them are block 0"
    )
    takes_padding = True

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        sizes = self.library.BigBirdConfig(
            hidden_size=workload.width,
            num_attention_heads=workload.heads,
            block_size=config.block,
            num_random_blocks=config.random_tokens // config.block,
            max_position_embeddings=workload.seq_len,
        )
        layer = self.library.BigBirdBlockSparseAttention(sizes, seed=config.seed)
        layer.query = self.query
        layer.key = self.key
        layer.value = self.value
        return layer

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        real = x.new_ones(x.shape[:2]) if mask is None else mask.to(x.dtype)
        masks = self.library.BigBirdModel.create_masks_for_block_sparse_attn
        blocks, band, rows, columns = masks(real, self.config.block)
        y, *_ = self.package_layer(
            x,
            band_mask=band,
            from_mask=rows,
            to_mask=columns,
            from_blocked_mask=blocks,
            to_blocked_mask=blocks,
        )
        return self.output(y)

    @staticmethod
    def unsupported_reason(config: Any, w: Workload) -> str | None:
        b = config.block
        drawn = config.random_tokens // config.block
        if config.global_tokens != 2 * b:
            return f"transformers' BigBird has two global blocks; give global_tokens={2 * b}"
        return not_multiple_reason(w, b, (6 + 2 * drawn) * b)


class Nystromformer(Sublayer, nystromformer.Nystromformer):
    module = "transformers.models.nystromformer.modeling_nystromformer"
    deviation = "it scales the start of the iteration by one number for the whole batch"
    tolerance = 1e-5

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        sizes = self.library.NystromformerConfig(
            hidden_size=workload.width,
            num_attention_heads=workload.heads,
            num_landmarks=config.landmarks,
            segment_means_seq_len=workload.seq_len,
            conv_kernel_size=config.conv_kernel or None,
            attention_probs_dropout_prob=0.0,
        )
        layer = self.library.NystromformerSelfAttention(sizes)
        layer.query = self.query
        layer.key = self.key
        layer.value = self.value
        if self.conv is not None:
            layer.conv = self.conv
        layer.iterative_inv = partial(layer.iterative_inv, n_iter=config.iterations)
        return layer

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.output(self.package_layer(x)[0])

    @staticmethod
    def unsupported_reason(config: Any, w: Workload) -> str | None:
        if w.dtype in ("float16", "bfloat16"):
            return f"transformers' Nyströmformer mixes {w.dtype} with float32 and fails"
        return not_multiple_reason(w, config.landmarks)


class Reformer(Sublayer, reformer.Reformer):
    module = "transformers.models.reformer.modeling_reformer"
    deviation = "it draws its own hashes"
    takes_causal = True

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        hashes = factors(config, workload.seq_len)
        sizes = self.library.ReformerConfig(
            hidden_size=workload.width,
            num_attention_heads=workload.heads,
            attention_head_size=workload.head_width,
            lsh_attn_chunk_length=config.chunk,
            lsh_num_chunks_after=0,
            num_hashes=config.rounds,
            num_buckets=hashes[0] if len(hashes) == 1 else list(hashes),
            is_decoder=workload.causal,
            lsh_attention_probs_dropout_prob=0.0,
        )
        layer = self.library.LSHSelfAttention(sizes)
        layer.query_key = self.query
        layer.value = self.value
        return layer

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.output(self.package_layer(x).hidden_states)

    @staticmethod
    def unsupported_reason(config: Any, w: Workload) -> str | None:
        if config.within_bucket:
            return "transformers' Reformer attends across buckets; leave within_bucket out"
        return not_multiple_reason(w, config.chunk, 2 * config.chunk)


class TransformerXL(Sublayer, transformer_xl.TransformerXL):
    module = "transformers.models.xlnet.modeling_xlnet"
    takes_causal = True

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        D = workload.width
        H = workload.heads
        sizes = self.library.XLNetConfig(d_model=D, n_head=H, dropout=0.0)
        layer = self.library.XLNetRelativeAttention(sizes)
        # plain attributes from now on, views of this module's parameters
        for name in [name for name, _ in layer.named_parameters(recurse=False)]:
            delattr(layer, name)
        layer.layer_norm = nn.Identity()
        return layer

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        layer: Any = self.package_layer
        layer.q, layer.k, layer.v, layer.r = (
            linear.weight.T.unflatten(1, (self.heads, -1))
            for linear in (self.query, self.key, self.value, self.position)
        )
        layer.o = self.output.weight.unflatten(1, (self.heads, -1))
        layer.r_w_bias = self.u.squeeze(1)
        layer.r_r_bias = self.v.squeeze(1)
        L = self.config.segment
        M = self.config.memory
        x = x.transpose(0, 1)  # [N, B, D]
        outputs = []
        for start in range(0, len(x), L):
            now = x[start : start + L]
            old = x[max(0, start - M) : start].detach()
            keys = len(old) + len(now)
            future = x.new_ones(len(now), keys).triu(1 + len(old))[..., None, None]
            R = self.sinusoids(keys, x)
            y, _ = layer(now, None, future, None, R, None, old)
            outputs.append(y - now)  # without the residual
        return torch.cat(outputs).transpose(0, 1)

    def sinusoids(self, keys: int, x: Tensor) -> Tensor:
        """R_p for p = keys … 0, [keys + 1, 1, D]; the farthest is of no key."""
        p = torch.arange(keys, -1, -1.0, device=x.device, dtype=torch.float64)
        n = torch.arange(0, self.width, 2, device=x.device, dtype=torch.float64)
        frequencies = 10000 ** (-n / self.width)
        return self.library.XLNetModel.positional_embedding(p, frequencies).to(x.dtype)

    @staticmethod
    def unsupported_reason(config: Any, w: Workload) -> str | None:
        return "transformers' XLNet has no biases; leave bias out" if config.bias else None


FORMS = MappingProxyType(
    {
        "longformer": Longformer,
        "bigbird": BigBird,
        "nystromformer": Nystromformer,
        "reformer": Reformer,
        "transformer_xl": TransformerXL,
    }
)
