"""memory_compressed_attention: memory-compressed attention with one convolution."""

from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from attnbench.mechanisms import memory_compressed
from attnbench.peers import Separate
from attnbench.records import Workload


class MemoryCompressed(Separate):
    package = "memory_compressed_attention"
    module = "memory_compressed_attention"
    departs = (
        "keys and values share a convolution that does not mix heads, logits are scaled by 1 / √D,"
        " padding stands in front, and there is a null key even if not causal"
    )
    takes_causal = True
    equations = memory_compressed.MemoryCompressed

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        return self.library.MemoryCompressedAttention(
            workload.width,
            workload.heads,
            causal=workload.causal,
            compression_factor=config.compression,
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.theirs(x)


FORMS = MappingProxyType({"memory_compressed": MemoryCompressed})
