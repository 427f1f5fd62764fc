"""isab-pytorch: induced set attention without the blocks' inner layers."""

from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from attnbench.mechanisms import set_transformer
from attnbench.peers import Separate
from attnbench.records import Workload


class SetTransformer(Separate):
    package = "isab-pytorch"
    module = "isab_pytorch.isab_pytorch"
    departs = "blocks have neither residual nor feed-forward layer, and scale by the head's width"
    takes_padding = True
    equations = set_transformer.SetTransformer

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        D, H = workload.width, workload.heads
        theirs: Any = self.library.ISAB(dim=D, heads=H, num_latents=config.points)
        # `ISAB` itself makes all heads 64 wide
        theirs.attn1, theirs.attn2 = (
            self.library.Attention(D, H, dim_head=workload.head_width) for _ in range(2)
        )
        return theirs

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y, _ = self.theirs(x, mask=mask)
        return y

    @staticmethod
    def refuses(config: Any, w: Workload) -> str | None:
        if config.block != "isab" or config.norm:
            return "isab-pytorch has only block=isab without norm"
        return None


FORMS = MappingProxyType({"set_transformer": SetTransformer})
