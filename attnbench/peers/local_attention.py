"""local-attention: attention within blocks, and with the block before each."""

from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from attnbench.attention.contract import QKVAttention
from attnbench.mechanisms import image_transformer, local
from attnbench.peers import Peer
from attnbench.records import Workload


class Blocks(Peer, QKVAttention):
    package = "local-attention"
    module = "local_attention"
    takes_causal = True
    takes_padding = True

    def windows(self, block: int, back: int) -> Any:
        """The package's attention of a block to itself and to `back` blocks before it."""
        return self.library.LocalAttention(
            block,
            causal=self.causal,
            look_backward=back,
            look_forward=0,
            autopad=True,
            use_rotary_pos_emb=False,
        )

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        B, _, N, _ = q.shape
        theirs: Any = self.theirs
        if mask is None and N % theirs.window_size:
            # without a mask the package lets the last block see its own padding
            mask = torch.ones(B, N, dtype=torch.bool, device=q.device)
        return theirs(q, k, v, mask=mask)


class Local(Blocks, local.Local):
    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        self.theirs = self.windows(config.block, 0)


class ImageTransformer(Blocks, image_transformer.ImageTransformer):
    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        self.theirs = self.windows(config.span(workload.seq_len), 1)

    @staticmethod
    def refuses(config: Any, w: Workload) -> str | None:
        if config.layout != "1d" or config.memory != config.block:
            return "local-attention has only layout=1d with memory equal to block"
        return None


FORMS = MappingProxyType({"local": Local, "image_transformer": ImageTransformer})
