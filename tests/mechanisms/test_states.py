"""What mechanisms with a state of fixed size share: padding, and what training keeps."""

import pytest
import torch

from attnbench.catalogue.registry import card
from attnbench.records import Level, Workload
from tests.kept import assert_linear, kept_bytes
from tests.mechanisms.building import build

LEARNED = ("gated_delta_net", "gated_linear", "kimi_delta", "mamba2", "rwkv7")  # rates of decay
CASES = [(name, {}) for name in (*LEARNED, "lightning", "retention")]


@pytest.mark.parametrize(("name", "options"), [*CASES, ("gated_delta_net", {"gate": False})])
def test_what_training_keeps_is_linear_in_length(name, options):
    def kept(seq_len):
        module = build(name, "chunked", batch=1, seq_len=seq_len, **options).float()
        return kept_bytes(module, torch.randn(1, seq_len, 16))[0]

    assert_linear(kept)


@pytest.mark.parametrize("name", ["kimi_delta", "rwkv7"])
def test_what_the_core_keeps_for_training_is_below_four_times_its_inputs(name):
    w = Workload(batch=1, seq_len=8192, width=256, heads=16, level=Level.CORE, causal=True)
    config = card(name).config()
    module = card(name).forms["chunked"](config, w)
    inputs = [torch.randn(shape).requires_grad_() for shape in module.core_inputs(config, w)]
    kept, _ = kept_bytes(module.attend, *inputs, None)
    assert kept < 4 * sum(tensor.nbytes for tensor in inputs)


@pytest.mark.parametrize("name", LEARNED)
def test_padding_leaves_the_state_as_it_is(name):
    module = build(name, "chunked", batch=1, seq_len=12)
    x, mask = torch.randn(1, 12, 16, dtype=torch.float64), torch.arange(12)[None] < 7
    (padded, *_), (short, *_) = (
        module.extend(tokens, real, module.start(1, 12))[1]
        for tokens, real in ((x, mask), (x[:, :7], None))
    )
    torch.testing.assert_close(padded, short)
