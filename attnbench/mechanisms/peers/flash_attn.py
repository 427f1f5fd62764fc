"""flash-attn: softmax attention by the kernels of FlashAttention, on NVIDIA GPUs.

Source: arXiv:2307.08691.
"""

from types import MappingProxyType
from typing import Any

from torch import Tensor

from attnbench.mechanisms import transformer
from attnbench.mechanisms.peers import Kernel
from attnbench.records import Workload

LARGEST = 256  # head width


class Transformer(Kernel, transformer.Transformer):
    package = "flash-attn"
    module = "flash_attn"
    install = "pip install flash-attn --no-build-isolation"
    takes_causal = True

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # [B, N, H, d]
        return self.library.flash_attn_func(q, k, v, causal=self.causal).transpose(1, 2)

    @staticmethod
    def unsupported_reason(config: Any, w: Workload) -> str | None:
        if w.device == "cpu":
            return "flash-attn has no CPU kernel"
        if w.dtype not in ("float16", "bfloat16"):
            return f"flash-attn has no {w.dtype} kernel; use float16 or bfloat16"
        if w.head_width > LARGEST:
            return f"flash-attn takes heads up to {LARGEST} wide, not {w.head_width}"
        return None

    @staticmethod
    def elements(config: Any, w: Workload) -> int:
        return w.heads * w.tokens


FORMS = MappingProxyType({"transformer": Transformer})
