"""fast-transformer-pytorch: a Fastformer that departs from the paper."""

from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from attnbench.mechanisms import fastformer
from attnbench.peers import Separate
from attnbench.records import Workload


class Fastformer(Separate):
    package = "fast-transformer-pytorch"
    module = "fast_transformer_pytorch.fast_transformer_pytorch"
    departs = (
        "heads share the logit vectors and W_R, values have their own projection, k̄ averages k"
        " instead of p, and another projection follows"
    )
    takes_padding = True
    equations = fastformer.Fastformer

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        return self.library.FastAttention(
            workload.width, heads=workload.heads, dim_head=workload.head_width
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        everything = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        return self.theirs(x, mask=everything if mask is None else mask)

    @staticmethod
    def refuses(config: Any, w: Workload) -> str | None:
        if config.interaction != "product" or config.share_heads:
            return "fast-transformer-pytorch has only interaction=product without share_heads"
        return None


FORMS = MappingProxyType({"fastformer": Fastformer})
