"""Layers of models before those of today.

They end before the output projection, which is added, except Transformer-XL's. Longformer computes
softmax in float32, Nyströmformer's identity matrix and Transformer-XL's sinusoids are float32.
"""

from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from attnbench.mechanisms import bigbird, longformer, nystromformer, reformer, transformer_xl
from attnbench.mechanisms.reformer import factors
from attnbench.peers import Packed, Shared, multiple
from attnbench.records import Workload

PACKAGE = "transformers"
MODELS = "transformers.models"
GLOBAL = 10_000.0  # Longformer's mask: global above 0, padding below 0


class Longformer(Shared, longformer.Longformer):
    package = PACKAGE
    module = f"{MODELS}.longformer.modeling_longformer"
    takes_padding = True
    tolerance = 1e-5

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        sizes = self.library.LongformerConfig(
            hidden_size=workload.width,
            num_attention_heads=workload.heads,
            attention_window=[config.window],
            attention_probs_dropout_prob=0.0,
        )
        theirs = self.library.LongformerSelfAttention(sizes, layer_id=0)
        for name in ("query", "key", "value"):
            own = getattr(self, name)
            setattr(theirs, name, own)
            setattr(theirs, f"{name}_global", getattr(self, f"{name}_global", own))
        return theirs

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        kinds = x.new_zeros(x.shape[:2])
        kinds[:, : self.config.global_tokens] = GLOBAL
        if mask is not None:
            kinds = kinds.masked_fill(~mask, -GLOBAL)
        y, *_ = self.theirs(
            x,
            attention_mask=kinds,
            is_index_masked=kinds < 0,
            is_index_global_attn=kinds > 0,
            is_global_attn=self.config.global_tokens > 0,
        )
        return self.output(y)

    @staticmethod
    def refuses(config: Any, w: Workload) -> str | None:
        if config.dilation > 1:
            return "transformers' Longformer has no dilation"
        return multiple(w, config.window, config.global_tokens)


class BigBird(Shared, bigbird.BigBird):
    package = PACKAGE
    module = f"{MODELS}.big_bird.modeling_big_bird"
    departs = (
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
        theirs = self.library.BigBirdBlockSparseAttention(sizes, seed=config.seed)
        for name in ("query", "key", "value"):
            setattr(theirs, name, getattr(self, name))
        return theirs

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        real = x.new_ones(x.shape[:2]) if mask is None else mask.to(x.dtype)
        masks = self.library.BigBirdModel.create_masks_for_block_sparse_attn
        blocks, band, rows, columns = masks(real, self.config.block)
        y, *_ = self.theirs(
            x,
            band_mask=band,
            from_mask=rows,
            to_mask=columns,
            from_blocked_mask=blocks,
            to_blocked_mask=blocks,
        )
        return self.output(y)

    @staticmethod
    def refuses(config: Any, w: Workload) -> str | None:
        b, drawn = config.block, config.random_tokens // config.block
        if config.global_tokens != 2 * b:
            return f"transformers' BigBird has two global blocks; give global_tokens={2 * b}"
        return multiple(w, b, (6 + 2 * drawn) * b)


class Nystromformer(Shared, nystromformer.Nystromformer):
    package = PACKAGE
    module = f"{MODELS}.nystromformer.modeling_nystromformer"
    departs = "it scales the start of the iteration by one number for the whole batch"
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
        theirs = self.library.NystromformerSelfAttention(sizes)
        for name in ("query", "key", "value"):
            setattr(theirs, name, getattr(self, name))
        if self.conv is not None:
            theirs.conv = self.conv
        theirs.iterative_inv = partial(theirs.iterative_inv, n_iter=config.iterations)
        return theirs

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.output(self.theirs(x)[0])

    @staticmethod
    def refuses(config: Any, w: Workload) -> str | None:
        if w.dtype in ("float16", "bfloat16"):
            return f"transformers' Nyströmformer mixes {w.dtype} with float32 and fails"
        return multiple(w, config.landmarks)


class Reformer(Shared, reformer.Reformer):
    package = PACKAGE
    module = f"{MODELS}.reformer.modeling_reformer"
    departs = "it draws its own hashes"
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
        theirs = self.library.LSHSelfAttention(sizes)
        theirs.query_key, theirs.value = self.query, self.value
        return theirs

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.output(self.theirs(x).hidden_states)

    @staticmethod
    def refuses(config: Any, w: Workload) -> str | None:
        if config.within_bucket:
            return "transformers' Reformer attends across buckets; leave within_bucket out"
        return multiple(w, config.chunk, 2 * config.chunk)


class TransformerXL(Shared, transformer_xl.TransformerXL):
    package = PACKAGE
    module = f"{MODELS}.deprecated.transfo_xl.modeling_transfo_xl"
    release = "4"
    takes_causal = True
    tolerance = 1e-4

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        theirs = self.library.RelPartialLearnableMultiHeadAttn(
            workload.heads, workload.width, workload.head_width, dropout=0.0
        )
        theirs.qkv_net = Packed(self.query, self.key, self.value)
        theirs.o_net, theirs.r_net = self.output, self.position
        del theirs.r_w_bias, theirs.r_r_bias
        theirs.layer_norm = nn.Identity()
        theirs.sinusoids = self.library.PositionalEmbedding(workload.width)
        return theirs

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        theirs: Any = self.theirs
        theirs.r_w_bias, theirs.r_r_bias = self.u.squeeze(1), self.v.squeeze(1)
        L, M = self.config.segment, self.config.memory
        x, outputs = x.transpose(0, 1), []  # [N, B, D]
        for start in range(0, len(x), L):
            now, old = x[start : start + L], x[max(0, start - M) : start].detach()
            keys = len(old) + len(now)
            distances = torch.arange(keys - 1, -1, -1.0, device=x.device)
            R = theirs.sinusoids(distances).to(x.dtype)
            # the package broadcasts the mask over the batch only if it has a third axis
            future = torch.ones(len(now), keys, device=x.device).triu(1 + len(old)).bool()
            y, *_ = theirs(now, R, attn_mask=future[..., None], mems=old)
            outputs.append(y - now)  # without the residual
        return torch.cat(outputs).transpose(0, 1)

    @staticmethod
    def refuses(config: Any, w: Workload) -> str | None:
        if w.dtype == "float64":
            return "transformers' Transformer-XL masks in float32 and fails in float64"
        return None


FORMS = MappingProxyType(
    {
        "longformer": Longformer,
        "bigbird": BigBird,
        "nystromformer": Nystromformer,
        "reformer": Reformer,
        "transformer_xl": TransformerXL,
    }
)
