"""reformer-pytorch: attention among equal hashes, on this mechanism's queries and values.

The package divides the logits by √d, which the mechanism does not, so queries are multiplied by √d.
"""

from types import MappingProxyType
from typing import Any

from torch import Tensor

from attnbench.mechanisms import reformer
from attnbench.peers import Peer, multiple
from attnbench.records import Workload


class Reformer(Peer, reformer.Reformer):
    package = "reformer-pytorch"
    module = "reformer_pytorch.reformer_pytorch"
    departs = "it draws its own hashes, of N / M buckets"
    takes_causal = True

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        self.theirs = self.library.LSHAttention(
            bucket_size=config.chunk,
            n_hashes=config.rounds,
            causal=workload.causal,
            attend_across_buckets=not config.within_bucket,
        )

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        q = q * q.shape[-1] ** 0.5
        o, *_ = self.theirs(q.flatten(0, 1), v.flatten(0, 1))
        return o.view_as(v)

    @staticmethod
    def refuses(config: Any, w: Workload) -> str | None:
        if config.buckets not in (None, w.seq_len // config.chunk):
            return f"reformer-pytorch has N / M = {w.seq_len // config.chunk} buckets"
        return multiple(w, 2 * config.chunk)

    @staticmethod
    def elements(config: Any, w: Workload) -> int:
        """The rotations of every token, with their negatives, for all rounds."""
        return 2 * w.heads * w.tokens * config.rounds * (w.seq_len // config.chunk)


FORMS = MappingProxyType({"reformer": Reformer})
