"""The recurrences, token by token, against the plain ones of flash-linear-attention.

Those that are forms of `tests.oracles.plain` are not repeated here.
"""

from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from attnbench.mechanisms.catalogue import registry
from attnbench.mechanisms.peers import fla
from attnbench.records import Level, Workload
from tests.oracles.plain import kernel_of, naive

B, H, N, D = 2, 3, 70, 8
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(find_spec("fla") is None, reason="flash-linear-attention is not installed"),
]

KERNELS = {
    "retention": lambda: ("chunk_simple_gla", naive("simple_gla").naive_recurrent_simple_gla),
    "lightning": lambda: ("chunk_simple_gla", naive("simple_gla").naive_recurrent_simple_gla),
    "mamba2": lambda: ("chunk_simple_gla", naive("simple_gla").naive_recurrent_simple_gla),
    "gated_delta_net": lambda: (
        "chunk_gated_delta_rule", naive("gated_delta_rule").naive_recurrent_gated_delta_rule
    ),
    "kimi_delta": lambda: ("chunk_kda", naive("kda").naive_recurrent_kda),
}  # fmt: skip


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_forms_of_flash_linear_attention_compute_the_mechanisms(name, masked, monkeypatch):
    """The form of the package without its kernels, and `eager` with the same parameters."""
    called, function = KERNELS[name]()
    card, form = registry.card(name), fla.FORMS[name]
    library = SimpleNamespace(**{called: kernel_of(function, {})})
    monkeypatch.setattr(form, "imported", classmethod(lambda cls: library))
    monkeypatch.setattr("attnbench.mechanisms.peers.Kernel.try_out", lambda *_: None)
    w = Workload(batch=B, seq_len=N, width=H * D, heads=H, level=Level.ATTENTION, causal=True)
    theirs, ours = form(card.config(), w), card.forms["eager"](card.config(), w)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(B, N, H * D)
    mask = (torch.arange(N) < N - 5).expand(B, -1) if masked else None
    assert_close(theirs(x, mask), ours(x, mask), rtol=1e-4, atol=1e-5)
