"""routing_transformer: routing heads beside local heads."""

from math import log2
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from attnbench.mechanisms import routing_transformer
from attnbench.mechanisms.routing_transformer import local_heads
from attnbench.peers import Separate, multiple
from attnbench.records import Workload


class RoutingTransformer(Separate):
    package = "routing_transformer"
    module = "routing_transformer.routing_transformer"
    departs = (
        "queries and keys are normalised for the choice only, local heads have their own"
        " projections, and W is a power of 2 near √N unless `members` gives it"
    )
    equations = routing_transformer.RoutingTransformer

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        self.commitment: Tensor | None = None
        N = workload.seq_len
        return self.library.SelfAttention(
            workload.width,
            depth=1,
            max_seq_len=N,
            heads=workload.heads,
            local_attn_heads=local_heads(config, workload),
            window_size=members(config, N),
            local_attn_window_size=min(config.window, N),
            kmeans_ema_decay=config.decay,
            commitment_factor=config.commitment,
            rel_pos_emb=False,
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y, self.commitment = self.theirs(x)
        return y

    def auxiliary_loss(self) -> Tensor | None:
        return self.commitment if self.training else None

    @staticmethod
    def refuses(config: Any, w: Workload) -> str | None:
        W = members(config, w.seq_len)
        if config.clusters not in (None, w.seq_len // W):
            return f"routing_transformer has N / W = {w.seq_len // W} clusters"
        return multiple(w, W) or multiple(w, min(config.window, w.seq_len))


def members(config: Any, N: int) -> int:
    """W, at most N."""
    return min(N, config.members or 2 ** round(log2(N) / 2))


FORMS = MappingProxyType({"routing_transformer": RoutingTransformer})
