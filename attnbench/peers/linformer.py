"""linformer: the package's layer, with both reductions shared by all heads."""

from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from attnbench.mechanisms import linformer
from attnbench.peers import Shared
from attnbench.records import Workload


class Linformer(Shared, linformer.Linformer):
    package = "linformer"
    module = "linformer"

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        theirs: Any = self.library.LinformerSelfAttention(
            workload.width, self.E.shape[-1], k=config.rank, heads=workload.heads
        )
        del theirs.proj_k, theirs.proj_v
        theirs.to_q, theirs.to_k, theirs.to_v = self.query, self.key, self.value
        theirs.to_out = self.output
        return theirs

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        theirs: Any = self.theirs
        assert self.F is not None, "there are two reductions"
        theirs.proj_k, theirs.proj_v = self.E.T, self.F.T
        return theirs(x)

    @staticmethod
    def refuses(config: Any, w: Workload) -> str | None:
        if config.sharing != "headwise":
            return f"linformer has only sharing=headwise, not {config.sharing}"
        return None


FORMS = MappingProxyType({"linformer": Linformer})
