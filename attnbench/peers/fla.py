"""flash-linear-attention: causal linear attention in chunks by Triton kernels, on GPUs.

The package applies no feature map, so it is given φ(q) and φ(k); to the normaliser it adds 10⁻¹⁰,
where the mechanism adds 10⁻⁶.
"""

from types import MappingProxyType
from typing import Any

from torch import Tensor

from attnbench.mechanisms import linear_transformer
from attnbench.mechanisms.linear_transformer import feature
from attnbench.peers import Kernel
from attnbench.records import Workload


class LinearTransformer(Kernel, linear_transformer.LinearTransformer):
    package = "flash-linear-attention"
    module = "fla.ops.linear_attn"
    takes_causal = True
    takes_padding = True
    tunes = True  # of its kernels one has 48 configurations, each of which Triton compiles

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (feature(q), feature(k), v))  # [B, N, H, d]
        if mask is not None:
            k = k * mask[..., None, None]
        o, _ = self.library.chunk_linear_attn(q, k, v, scale=1.0, normalize=True)
        return o.to(v.dtype).transpose(1, 2)

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


FORMS = MappingProxyType({"linear_transformer": LinearTransformer})
