"""compressive-transformer-pytorch: segments with a memory and a compressed memory."""

from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from attnbench.mechanisms import compressive_transformer
from attnbench.peers import Separate
from attnbench.records import Workload


class CompressiveTransformer(Separate):
    package = "compressive-transformer-pytorch"
    module = "compressive_transformer_pytorch.compressive_transformer_pytorch"
    departs = (
        "there are no positions, the loss counts every slot, and the first training step stops the"
        " training of the keys' and values' projection"
    )
    takes_causal = True
    equations = compressive_transformer.CompressiveTransformer

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        self.losses: list[Tensor] = []
        return self.library.SelfAttention(
            workload.width,
            config.segment,
            config.memory,
            config.compressed,
            config.rate,
            heads=workload.heads,
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        memories, outputs, self.losses = None, [], []
        for segment in x.split(self.config.segment, 1):
            y, memories, loss = self.theirs(segment, memories)
            memories = tuple(memory.detach() for memory in memories)
            outputs.append(y)
            self.losses.append(loss)
        return torch.cat(outputs, 1)

    def auxiliary_loss(self) -> Tensor | None:
        """The mean over the segments that compress some of their memory."""
        if not self.training:
            return None
        some = [loss for loss in self.losses if not loss.is_leaf]
        return torch.stack(some).mean() if some else None

    @staticmethod
    def refuses(config: Any, w: Workload) -> str | None:
        if config.compression != "conv":
            return "compressive-transformer-pytorch has only compression=conv"
        return None


FORMS = MappingProxyType({"compressive_transformer": CompressiveTransformer})
