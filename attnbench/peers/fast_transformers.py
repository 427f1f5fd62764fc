"""pytorch-fast-transformers, by the authors of the Linear Transformer."""

from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from attnbench.mechanisms import linear_transformer
from attnbench.peers import Peer
from attnbench.records import Workload


class LinearTransformer(Peer, linear_transformer.LinearTransformer):
    package = "pytorch-fast-transformers"
    module = "fast_transformers"
    install = "pip install pytorch-fast-transformers"
    takes_padding = True

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        self.theirs = self.library.attention.LinearAttention(workload.head_width)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        B, _, N, _ = q.shape
        masks = self.library.masking
        real = torch.full((B,), N, device=q.device)
        lengths = masks.LengthMask(real if mask is None else mask.sum(-1), max_len=N)
        everything = masks.FullMask(N, device=q.device)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # [B, N, H, d]
        return self.theirs(q, k, v, everything, lengths, lengths).transpose(1, 2)


FORMS = MappingProxyType({"linear_transformer": LinearTransformer})
