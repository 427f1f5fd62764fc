"""entmax: α-entmax by bisection, by the authors of adaptively sparse attention."""

from types import MappingProxyType

from torch import Tensor

from attnbench.mechanisms import adaptively_sparse
from attnbench.peers import Peer


class AdaptivelySparse(Peer, adaptively_sparse.AdaptivelySparse):
    package = "entmax"
    module = "entmax"
    takes_causal = True
    takes_padding = True
    tolerance = 1e-6

    def entmax(self, logits: Tensor) -> Tensor:
        return self.library.entmax_bisect(logits, 1 + self.sparsity()[:, None, None], dim=-1)


FORMS = MappingProxyType({"adaptively_sparse": AdaptivelySparse})
