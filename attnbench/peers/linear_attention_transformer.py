"""linear-attention-transformer: the linear attention of Shen et al. (arXiv:1812.01243)."""

from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from attnbench.mechanisms import linear_transformer
from attnbench.peers import Separate
from attnbench.records import Workload


class LinearTransformer(Separate):
    package = "linear-attention-transformer"
    module = "linear_attention_transformer.linear_attention_transformer"
    departs = (
        "φ is a softmax of q over features, divided by √d, and of k over tokens,"
        " without a normaliser"
    )
    takes_padding = True
    equations = linear_transformer.LinearTransformer

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        return self.library.SelfAttention(
            workload.width, workload.heads, dim_head=workload.head_width
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.theirs(x, input_mask=mask)


FORMS = MappingProxyType({"linear_transformer": LinearTransformer})
