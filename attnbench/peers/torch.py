"""torch's own layer: `nn.MultiheadAttention`, as models of torch use it."""

from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from attnbench.mechanisms import transformer
from attnbench.peers import Packed, Shared
from attnbench.records import Workload


class Transformer(Shared, transformer.Transformer):
    package = "torch"
    module = "torch.nn"
    counted = False  # torch counts no product of its fused path
    takes_causal = True
    takes_padding = True

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        D, N = workload.width, workload.seq_len
        theirs: Any = nn.MultiheadAttention(D, workload.heads, bias=config.bias, batch_first=True)
        # plain attributes from now on, computed from the separate maps
        del theirs.in_proj_weight, theirs.in_proj_bias
        theirs.packed = Packed(self.query, self.key, self.value)
        theirs.out_proj = self.output
        future = torch.ones(N, N, dtype=torch.bool).triu(1) if self.causal else None
        theirs.register_buffer("future", future, persistent=False)
        return theirs

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        theirs: Any = self.theirs
        theirs.in_proj_weight, theirs.in_proj_bias = theirs.packed.weight, theirs.packed.bias
        y, _ = theirs(
            *(x, x, x),
            key_padding_mask=None if mask is None else ~mask,
            attn_mask=theirs.future,
            is_causal=self.causal,
            need_weights=False,
        )
        return y

    @staticmethod
    def elements(config: Any, w: Workload) -> int:
        scores = w.heads * w.tokens * w.seq_len if w.padding else 0
        return w.heads * w.tokens + 3 * w.tokens * w.width + scores + w.seq_len**2 * w.causal


FORMS = MappingProxyType({"transformer": Transformer})
