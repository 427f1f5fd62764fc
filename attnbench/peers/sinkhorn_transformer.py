"""sinkhorn_transformer: attention among blocks sorted by a balanced matrix."""

from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from attnbench.mechanisms import sinkhorn
from attnbench.peers import Separate, multiple
from attnbench.records import Workload


class Sinkhorn(Separate):
    package = "sinkhorn_transformer"
    module = "sinkhorn_transformer.sinkhorn_transformer"
    departs = (
        "blocks are sorted by products of their mean queries and keys, noise is drawn in inference"
        " too, and the sorted values are the sorted keys"
    )
    equations = sinkhorn.Sinkhorn

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        return self.library.SinkhornSelfAttention(
            workload.width,
            config.block,
            workload.seq_len,
            heads=workload.heads,
            non_permutative=False,
            sinkhorn_iter=config.iterations,
            temperature=config.temperature,
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.theirs(x)

    @staticmethod
    def refuses(config: Any, w: Workload) -> str | None:
        if config.sort_cut or not config.gumbel:
            return "sinkhorn_transformer runs here only with noise and without sort_cut"
        return multiple(w, config.block)


FORMS = MappingProxyType({"sinkhorn": Sinkhorn})
