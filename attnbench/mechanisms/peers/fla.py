"""flash-linear-attention: recurrences, and attention that forgets, by Triton kernels on GPUs.

Its kernels take the numbers of the workload's type, ours for recurrences at least float32. Whatever
comes before and after the recurrence over tokens, and a single token's step, is the mechanism's own
code. In float32 the products of the kernels are those of TF32, unless Triton is told otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from attnbench.attention import Flops, Recurrent, fused_pairs
from attnbench.mechanisms import (
    forgetting,
    gated_delta_net,
    gated_linear,
    kimi_delta,
    lightning,
    linear_transformer,
    mamba2,
    retention,
    rwkv7,
)
from attnbench.mechanisms.linear_transformer import feature
from attnbench.mechanisms.peers import Kernel
from attnbench.records import Workload


class Triton(Kernel):
    """Causal attention by a kernel of the package."""

    package = "flash-linear-attention"
    takes_causal = True
    takes_padding = True
    tunes = True  # one kernel has 48 configurations, each of which Triton compiles

    @staticmethod
    def unsupported_reason(config: Any, w: Workload) -> str | None:
        if not w.causal:
            return "flash-linear-attention is causal only; add --causal"
        if w.device == "cpu":
            return "flash-linear-attention has no CPU kernel"
        if w.dtype == "float64":
            return "flash-linear-attention has no float64 kernel"
        if w.seq_len < w.heads:
            return f"flash-linear-attention takes no fewer tokens than heads, {w.heads}"
        return None


class LinearTransformer(Triton, linear_transformer.LinearTransformer):
    """Without a feature map of its own, so it is given φ(q) and φ(k); to the normaliser it adds
    10⁻¹⁰, where the mechanism adds 10⁻⁶.
    """

    module = "fla.ops.linear_attn"

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = by_token(feature(q), feature(k), v)
        if mask is not None:
            k = k * mask[..., None, None]
        o, _ = self.library.chunk_linear_attn(q, k, v, scale=1.0, normalize=True)
        return o.to(v.dtype).transpose(1, 2)


class Forgetting(Triton, forgetting.Forgetting):
    module = "fla.ops.forgetting_attn"
    takes_padding = False

    def attend(self, q: Tensor, k: Tensor, v: Tensor, f: Tensor, mask: Tensor | None) -> Tensor:
        g = self.fading(f).float()
        o = self.library.parallel_forgetting_attn(*by_token(q, k, v, g))
        return o.transpose(1, 2)

    @staticmethod
    def flops(config: Any, w: Workload) -> Flops:
        """As eager, but no products with later keys."""
        core = 4 * w.width * fused_pairs(w)
        return replace(forgetting.Forgetting.flops(config, w), core=core)

    @staticmethod
    def elements(config: Any, w: Workload) -> int:
        """The logs of decays, in float64 too."""
        return 3 * w.heads * w.tokens


class Recurrence(Triton, Recurrent):
    """A recurrence whose rule over tokens is a kernel's, `theirs`."""

    def __init__(self, config: Any, workload: Workload) -> None:
        self.dtype = getattr(torch, workload.dtype)
        super().__init__(config, workload)

    def rule(self, S: Tensor, g: Tensor, *inputs: Any) -> tuple[Tensor, Tensor]:
        """As the rules of `attention.kernels.recurrence`.

        o [B, H, N, dv], and S after the tokens.
        """
        *tensors, _ = inputs  # without the length of a chunk
        q = tensors[0]
        if q.shape[2] == 1:
            return super().rule(S, g, *inputs)
        g = g.expand(len(q), -1, q.shape[2], *g.shape[3:])
        o, S = self.theirs(S, g, *tensors)
        return o.transpose(1, 2).to(S.dtype), S

    def theirs(self, S: Tensor, g: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        """o [B, N, H, dv] and S by the package, from g, q, k, v, … of every token."""
        raise NotImplementedError

    def computed(self, name: str, S: Tensor, inputs: Mapping[str, Tensor], **rates: Tensor) -> Any:
        """What a function of the package gives for inputs in the type of the workload; `rates`, as
        decays, keep their own.
        """
        given = {key: x.to(self.dtype) for key, x in inputs.items()} | rates
        given = {key: x.transpose(1, 2) for key, x in given.items()}
        function = getattr(self.library, name)
        return function(**given, scale=1.0, initial_state=S, output_final_state=True)


class Decay(Recurrence):
    """Heads of a group share q and k here, and have their own in the package."""

    module = "fla.ops.simple_gla"

    def theirs(self, S: Tensor, g: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = tensors
        groups = S.shape[1]
        shared = S.shape[3]
        q, k = (x.repeat_interleave(shared, 1) for x in (q, k))
        own = S.movedim(3, 2).flatten(1, 2)
        o, own = self.computed("chunk_simple_gla", own, named("qkv", (q, k, v)), g=g)
        return o, own.unflatten(1, (groups, shared)).movedim(2, 3)


class Mamba2(Decay, mamba2.Chunked):
    pass


class Retention(Decay, retention.Chunked):
    pass


class Lightning(Decay, lightning.Chunked):
    pass


class GatedLinear(Recurrence, gated_linear.Chunked):
    module = "fla.ops.gla"

    def theirs(self, S: Tensor, g: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        return self.computed("chunk_gla", S, named("qkv", tensors), g=g)


class GatedDeltaNet(Recurrence, gated_delta_net.Chunked):
    module = "fla.ops.gated_delta_rule"

    def theirs(self, S: Tensor, g: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        *qkv, beta = tensors
        g = g.expand_as(beta)
        return self.computed("chunk_gated_delta_rule", S, named("qkv", qkv), g=g, beta=beta)


class KimiDelta(Recurrence, kimi_delta.Chunked):
    module = "fla.ops.kda"

    def theirs(self, S: Tensor, g: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        *qkv, beta = tensors
        return self.computed("chunk_kda", S, named("qkv", qkv), g=g, beta=beta)


class Rwkv7(Recurrence, rwkv7.Chunked):
    module = "fla.ops.rwkv7"

    def theirs(self, S: Tensor, g: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v, b, r = tensors
        a = -r * g.exp()  # theirs reads S before its decay
        return self.computed("chunk_rwkv7", S, named("rkvab", (q, k, v, a, b)), w=g)


def named(names: str, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """Each tensor by its name, a letter."""
    return dict(zip(names, tensors, strict=True))


def by_token(*tensors: Tensor) -> tuple[Tensor, ...]:
    """[B, H, N, ...] to [B, N, H, ...]."""
    return tuple(x.transpose(1, 2) for x in tensors)


FORMS = MappingProxyType(
    {
        "forgetting": Forgetting,
        "gated_delta_net": GatedDeltaNet,
        "gated_linear": GatedLinear,
        "kimi_delta": KimiDelta,
        "lightning": Lightning,
        "linear_transformer": LinearTransformer,
        "mamba2": Mamba2,
        "retention": Retention,
        "rwkv7": Rwkv7,
    }
)
