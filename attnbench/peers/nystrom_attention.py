"""nystrom-attention: the package's layer, whose landmarks skip padding."""

from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from attnbench.mechanisms import nystromformer
from attnbench.peers import Packed, Shared, multiple
from attnbench.records import Workload


class Nystromformer(Shared, nystromformer.Nystromformer):
    package = "nystrom-attention"
    module = "nystrom_attention.nystrom_attention"
    departs = "it scales the start of the iteration by one number for the whole batch"
    takes_padding = True
    tolerance = 1e-5

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        theirs: Any = self.library.NystromAttention(
            workload.width,
            workload.head_width,
            workload.heads,
            config.landmarks,
            config.iterations,
            residual=self.conv is not None,
        )
        theirs.to_qkv, theirs.to_out = Packed(self.query, self.key, self.value), self.output
        if self.conv is not None:
            theirs.res_conv = self.conv
        return theirs

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.theirs(x, mask=mask)

    @staticmethod
    def refuses(config: Any, w: Workload) -> str | None:
        return multiple(w, config.landmarks, 2 * config.landmarks)


FORMS = MappingProxyType({"nystromformer": Nystromformer})
