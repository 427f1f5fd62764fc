"""yet-another-retnet: retention in chunks, between the projections of the mechanism."""

from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from attnbench.attention.primitives import widen
from attnbench.mechanisms import retention
from attnbench.peers import Peer


class Retention(Peer, retention.Chunked):
    package = "yet-another-retnet"
    module = "yet_another_retnet.retention"
    install = "pip install yet-another-retnet"
    departs = "its γ lie between 1 − 1/32 and 1 − 1/512, however many heads there are"
    takes_causal = True

    def retain(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, S: Tensor
    ) -> tuple[Tensor, Tensor]:
        outputs, state = [], S.squeeze(3)
        C = self.chunk(self.config, q.shape[-1])
        for part in zip(*(widen(t).split(C, 2) for t in (q, k, v)), strict=True):
            o, state = self.library.retention_chunkwise(*part, prev_state=state)
            outputs.append(o)
        return torch.cat(outputs, 2).to(v.dtype), state[..., None, :]

    @staticmethod
    def chunk(config: Any, d: int) -> int:
        """128 unless given: each chunk is a step of a loop in Python."""
        return config.chunk or 128


FORMS = MappingProxyType({"retention": Retention})
