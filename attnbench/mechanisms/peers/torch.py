"""torch's own layer: `nn.MultiheadAttention`, as models of torch use it."""

from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from attnbench.mechanisms import transformer
from attnbench.mechanisms.peers import Packed, Shared
from attnbench.records import Workload


class Transformer(Shared, transformer.Transformer):
    package = "torch"
    module = "torch.nn"
    flops_estimated = False  # torch counts no product of its fused path
    takes_causal = True
    takes_padding = True

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        D = workload.width
        N = workload.seq_len
        layer: Any = nn.MultiheadAttention(D, workload.heads, bias=config.bias, batch_first=True)
        # plain attributes from now on, computed from the separate maps
        del layer.in_proj_weight, layer.in_proj_bias
        layer.packed = Packed(self.query, self.key, self.value)
        layer.out_proj = self.output
        future = torch.ones(N, N, dtype=torch.bool).triu(1) if self.causal else None
        layer.register_buffer("future", future, persistent=False)
        return layer

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        layer: Any = self.package_layer
        layer.in_proj_weight = layer.packed.weight
        layer.in_proj_bias = layer.packed.bias
        y, _ = layer(
            *(x, x, x),
            key_padding_mask=None if mask is None else ~mask,
            attn_mask=layer.future,
            is_causal=self.causal,
            need_weights=False,
        )
        return y

    @staticmethod
    def elements(config: Any, w: Workload) -> int:
        scores = w.heads * w.tokens * w.seq_len if w.padding else 0
        return w.heads * w.tokens + 3 * w.tokens * w.width + scores + w.seq_len**2 * w.causal


FORMS = MappingProxyType({"transformer": Transformer})
