"""performer-pytorch: Performer's feature maps and linear attention, with this mechanism's ω and ε.

The package keeps padding in the normaliser, and in causal attention its positive kernel takes the
maximum of the keys over the future too; both are refused. Causal products are those without the
CUDA extension of fast-transformers.
"""

from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from attnbench.mechanisms import performer
from attnbench.peers import Peer
from attnbench.records import Workload


class Performer(Peer, performer.Performer):
    package = "performer-pytorch"
    module = "performer_pytorch.performer_pytorch"
    takes_causal = True

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        q, k = self.features(q, is_query=True), self.features(k, is_query=False)
        if self.causal:
            return self.library.causal_linear_attention_noncuda(q, k, v, eps=0.0)
        return self.library.linear_attention(q, k, v)

    def features(self, x: Tensor, is_query: bool) -> Tensor:
        """φ(x / d^¼) [B, H, N, M]."""
        if self.config.kernel == "positive":
            return self.library.softmax_kernel(
                x, projection_matrix=self.omega, is_query=is_query, eps=self.config.added
            )
        # the package has no 1 / √M here
        omega = self.omega * self.config.features**-0.5
        return self.library.generalized_kernel(
            x, projection_matrix=omega, kernel_fn=torch.relu, kernel_epsilon=self.config.added
        )

    @staticmethod
    def refuses(config: Any, w: Workload) -> str | None:
        if config.kernel == "trigonometric":
            return "performer-pytorch has no trigonometric features"
        if config.redraw:
            return "performer-pytorch redraws by a count of calls; leave redraw out"
        if w.causal and config.kernel == "positive":
            return "performer-pytorch's causal positive kernel reads the future; kernel=relu runs"
        return None


FORMS = MappingProxyType({"performer": Performer})
