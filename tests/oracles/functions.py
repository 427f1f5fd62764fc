"""Packages whose functions compute part of the mechanism's own class, on its parameters."""

import torch

from attnbench.attention.contract import QKVAttention
from attnbench.attention.kernels.primitives import widen
from attnbench.mechanisms import (
    adaptively_sparse,
    image_transformer,
    local,
    performer,
    reformer,
    retention,
)
from attnbench.mechanisms.peers import Peer, not_multiple_reason


class Function(Peer):
    install = "pip install --group oracles"


class AdaptivelySparse(Function, adaptively_sparse.AdaptivelySparse):
    """α-entmax by bisection, by the authors of adaptively sparse attention."""

    package = "entmax"
    module = "entmax"
    takes_causal = True
    takes_padding = True
    tolerance = 1e-6

    def entmax(self, logits):
        return self.library.entmax_bisect(logits, 1 + self.sparsity()[:, None, None], dim=-1)


class Blocks(Function, QKVAttention):
    """Attention of blocks to themselves and to `back` blocks before each."""

    package = "local-attention"
    module = "local_attention"
    takes_causal = True
    takes_padding = True
    back = 0

    def __init__(self, config, workload):
        super().__init__(config, workload)
        self.package_layer = self.library.LocalAttention(
            self.block(config, workload.seq_len),
            causal=self.causal,
            look_backward=self.back,
            look_forward=0,
            autopad=True,
            use_rotary_pos_emb=False,
        )

    @staticmethod
    def block(config, seq_len):
        return config.block

    def attend(self, q, k, v, mask):
        B, _, N, _ = q.shape
        if mask is None and N % self.package_layer.window_size:
            # without a mask the package lets the last block see its own padding
            mask = torch.ones(B, N, dtype=torch.bool, device=q.device)
        return self.package_layer(q, k, v, mask=mask)


class Local(Blocks, local.Local):
    pass


class ImageTransformer(Blocks, image_transformer.ImageTransformer):
    back = 1

    @staticmethod
    def block(config, seq_len):
        return config.span(seq_len)

    @staticmethod
    def unsupported_reason(config, w):
        if config.layout != "1d" or config.memory != config.block:
            return "local-attention has only layout=1d with memory equal to block"
        return None


class Performer(Function, performer.Performer):
    """The feature maps and linear attention, with this mechanism's ω and ε.

    The package keeps padding in the normaliser, and in causal attention its positive kernel takes
    the maximum of the keys over the future too; both are refused. Causal products are those without
    the CUDA extension of fast-transformers.
    """

    package = "performer-pytorch"
    module = "performer_pytorch.performer_pytorch"
    takes_causal = True

    def attend(self, q, k, v, mask):
        q, k = self.features(q, is_query=True), self.features(k, is_query=False)
        if self.causal:
            return self.library.causal_linear_attention_noncuda(q, k, v, eps=0.0)
        return self.library.linear_attention(q, k, v)

    def features(self, x, is_query):
        """φ(x / d^¼) [B, H, N, M]."""
        if self.config.kernel == "positive":
            return self.library.softmax_kernel(
                x, projection_matrix=self.omega, is_query=is_query, eps=self.config.added
            )
        # the package has no 1 / √M here
        omega = self.omega * self.config.features**-0.5
        return self.library.generalized_kernel(
            x, projection_matrix=omega, kernel_fn=torch.relu, kernel_epsilon=self.config.added
        )

    @staticmethod
    def unsupported_reason(config, w):
        if config.kernel == "trigonometric":
            return "performer-pytorch has no trigonometric features"
        if config.redraw:
            return "performer-pytorch redraws by a count of calls; leave redraw out"
        if w.causal and config.kernel == "positive":
            return "performer-pytorch's causal positive kernel reads the future; kernel=relu runs"
        return None


class Reformer(Function, reformer.Reformer):
    """Attention among equal hashes. The package divides the logits by √d; queries undo that."""

    package = "reformer-pytorch"
    module = "reformer_pytorch.reformer_pytorch"
    deviation = "it draws its own hashes, of N / M buckets"
    takes_causal = True

    def __init__(self, config, workload):
        super().__init__(config, workload)
        self.package_layer = self.library.LSHAttention(
            bucket_size=config.chunk,
            n_hashes=config.rounds,
            causal=workload.causal,
            attend_across_buckets=not config.within_bucket,
        )

    def attend(self, q, k, v, mask):
        q = q * q.shape[-1] ** 0.5
        o, *_ = self.package_layer(q.flatten(0, 1), v.flatten(0, 1))
        return o.view_as(v)

    @staticmethod
    def unsupported_reason(config, w):
        if config.buckets not in (None, w.seq_len // config.chunk):
            return f"reformer-pytorch has N / M = {w.seq_len // config.chunk} buckets"
        return not_multiple_reason(w, 2 * config.chunk)


class Retention(Function, retention.Chunked):
    """Retention in chunks; with five heads both have the same γ."""

    package = "yet-another-retnet"
    module = "yet_another_retnet.retention"
    deviation = "its γ lie between 1 − 1/32 and 1 − 1/512, however many heads there are"
    takes_causal = True

    def scan(self, q, k, v, mask, S):
        outputs, state = [], S.squeeze(3)
        chunk = self.config.chunk or 128  # each is a step of a loop in Python
        for part in zip(*(widen(t).split(chunk, 2) for t in (q, k, v)), strict=True):
            o, state = self.library.retention_chunkwise(*part, prev_state=state)
            outputs.append(o)
        return torch.cat(outputs, 2).to(v.dtype), state[..., None, :]


FORMS = {
    "adaptively_sparse": AdaptivelySparse,
    "image_transformer": ImageTransformer,
    "local": Local,
    "performer": Performer,
    "reformer": Reformer,
    "retention": Retention,
}
