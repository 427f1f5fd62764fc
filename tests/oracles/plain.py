"""Plain PyTorch that packages publish beside kernels of GPUs.

flash-linear-attention has a file of naive references for most operators, which import neither it
nor Triton: of RWKV-7's rule in chunks, of gated linear attention's token by token only.
"""

import importlib.util
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

from torch import nn

from attnbench.mechanisms import grouped_query, indexed
from attnbench.mechanisms.peers import Peer, fla, not_multiple_reason
from tests.oracles.separate import Separate


@cache
def naive(operator):
    """The naive references of one operator of flash-linear-attention."""
    file = Path(find_spec("fla").submodule_search_locations[0]) / "ops" / operator / "naive.py"
    spec = importlib.util.spec_from_file_location("fla_naive", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kernel_of(function, names):
    """A kernel of the package by its naive reference, whose arguments have other `names`."""

    def kernel(*, scale, **given):
        given = {names.get(key, key): x for key, x in given.items()}
        given["q"] = scale * given["q"] * given["q"].shape[-1] ** 0.5  # the naive ones divide by it
        return function(**given)

    return kernel


def by_head(function):
    """A reference that takes heads before tokens, in float32, as one of tokens before heads."""

    def by_token(*, initial_state, output_final_state, **given):
        given = {key: x.transpose(1, 2).float() for key, x in given.items()}
        o, S = function(**given, initial_state=initial_state)
        return o.transpose(1, 2), S

    return by_token


DPLR = {"r": "q", "a": "alpha", "b": "beta", "w": "gk"}


class Naive(Peer):
    """A form of `mechanisms.peers.fla` with plain PyTorch in place of its kernel, on a CPU."""

    package = "fla-core"
    module = "fla"
    label = "fla-naive"
    install = "pip install --group oracles"
    takes_causal = True
    takes_padding = True
    tolerance = 1e-5  # theirs is float32

    @staticmethod
    def unsupported_reason(config, w):
        return None

    def try_out(self, w):
        """Nothing: plain PyTorch works."""


class GatedLinear(Naive, fla.GatedLinear):
    @classmethod
    def imported(cls):
        return SimpleNamespace(chunk_gla=kernel_of(naive("gla").naive_recurrent_gla, {"g": "gk"}))


class Rwkv7(Naive, fla.Rwkv7):
    @classmethod
    def imported(cls):
        rule = by_head(naive("generalized_delta_rule/dplr").dplr_chunkwise)
        return SimpleNamespace(chunk_rwkv7=kernel_of(rule, DPLR))

    @staticmethod
    def unsupported_reason(config, w):
        return not_multiple_reason(w, 32)


class Forgetting(Naive, fla.Forgetting):
    takes_padding = False

    @classmethod
    def imported(cls):
        function = naive("forgetting_attn").naive_forgetting_attn
        return SimpleNamespace(parallel_forgetting_attn=function)

    def attend(self, q, k, v, f, mask):
        return super().attend(q, k, v, f, mask).to(v.dtype)


class Indexed(Naive, indexed.Indexed):
    """DeepSeek's sparse attention."""

    deviation = "it scores and chooses tokens, also where blocks are chosen here"
    takes_padding = False

    @classmethod
    def imported(cls):
        return naive("dsa")

    def attend(self, q, k, v, index, keys, mask):
        q, k, v, asked = (x.transpose(1, 2) for x in (q, k, v, index[..., :-1]))
        o = self.library.naive_dsa(
            q, k, v, asked, keys[:, 0], index[..., -1].mT, topk=self.config.budget
        )
        return o.transpose(1, 2)

    @staticmethod
    def unsupported_reason(config, w):
        if config.score != "sum" or config.kv_rank is not None:
            return "fla's reference has score=sum only, and no latents"
        return None


class NativeSparse(Separate):
    package = "native-sparse-attention-pytorch"
    module = "native_sparse_attention_pytorch.native_sparse_attention"
    deviation = (
        "a null key is among the means, the first block and the one before the query's own are"
        " chosen as any other, by mean logits, and the window has one token more"
    )
    takes_causal = True

    def layer(self, config, workload):
        layer = self.library.SparseAttention(
            workload.width,
            workload.head_width,
            workload.heads,
            sliding_window_size=min(config.window, workload.seq_len),
            compress_block_size=config.block,
            compress_block_sliding_stride=config.block,
            selection_block_size=config.block,
            num_selected_blocks=config.blocks - 1,
            kv_heads=grouped_query.kv_heads(config, workload),
            causal=workload.causal,
            norm=False,
            compress_mlp=Mean(),
        )
        layer.rotary_emb.freqs.data.zero_()
        return layer


class Mean(nn.Module):
    """Of the tokens of each block, [B, K, M, C, d] to [B, K, M, d]."""

    def forward(self, x):
        return x.mean(-2)


FORMS = {
    "forgetting": Forgetting,
    "gated_linear": GatedLinear,
    "indexed": Indexed,
    "native_sparse": NativeSparse,
    "rwkv7": Rwkv7,
}
