"""xformers: softmax attention by its memory-efficient kernels, on GPUs."""

from types import MappingProxyType
from typing import Any

from torch import Tensor

from attnbench.mechanisms import transformer
from attnbench.mechanisms.peers import Kernel
from attnbench.records import Workload


class Transformer(Kernel, transformer.Transformer):
    package = "xformers"
    module = "xformers.ops"
    takes_causal = True

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # [B, N, H, d]
        bias = self.library.LowerTriangularMask() if self.causal else None
        return self.library.memory_efficient_attention(q, k, v, attn_bias=bias).transpose(1, 2)

    @staticmethod
    def unsupported_reason(config: Any, w: Workload) -> str | None:
        if w.device == "cpu":
            return "xformers' memory_efficient_attention has no CPU kernel"
        return "xformers has no float64 kernel" if w.dtype == "float64" else None

    @staticmethod
    def elements(config: Any, w: Workload) -> int:
        return w.heads * w.tokens


FORMS = MappingProxyType({"transformer": Transformer})
