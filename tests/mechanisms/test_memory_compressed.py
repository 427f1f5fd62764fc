"""Memory-compressed attention: the limit without compression, and which keys are visible."""

import pytest
import torch

from attnbench.mechanisms.memory_compressed import CARD, Config
from attnbench.mechanisms.transformer import Transformer
from attnbench.records import Level, Workload

FORMS = ["eager", "sdpa", "folded"]


def build(form, compression=3, seq_len=20, causal=False, **sizes):
    torch.manual_seed(0)
    w = Workload(
        batch=2, seq_len=seq_len, width=16, heads=4, level="attention", causal=causal, **sizes
    )
    return CARD.forms[form](Config(compression=compression), w).double()


@pytest.mark.parametrize("form", FORMS)
def test_a_convolution_that_copies_each_token_is_softmax_attention(form):
    module = build(form, compression=1)
    with torch.no_grad():
        module.compress_key.weight.copy_(torch.eye(16))
        module.compress_value.weight.copy_(torch.eye(16))
    w = Workload(batch=2, seq_len=20, width=16, heads=4, level="attention")
    plain = Transformer(Config(), w).double()
    plain.load_state_dict(module.state_dict(), strict=False)
    x = torch.randn(2, 20, 16, dtype=torch.float64)
    torch.testing.assert_close(module(x), plain(x))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compression", [3, 4])
@pytest.mark.parametrize("seq_len", [1, 2, 3, 11, 12, 13])
def test_a_causal_query_sees_blocks_that_are_complete(form, compression, seq_len):
    module = build(form, compression, seq_len, causal=True)
    x = torch.randn(1, seq_len, 16, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda t: module(t)[0].sum(-1), x)
    seen = jacobian[:, 0].abs().sum(-1) > 0
    for i in range(seq_len):
        complete = (i + 1) // compression * compression
        # until the first block is complete there is only the null key
        own = {i} if complete else set()
        assert set(seen[i].nonzero().flatten().tolist()) == set(range(complete)) | own


@pytest.mark.parametrize("form", FORMS)
def test_a_causal_query_without_a_block_gets_the_null_value(form):
    module = build(form, causal=True)
    torch.nn.init.normal_(module.null_value)
    y = module(torch.randn(2, 20, 16, dtype=torch.float64))
    torch.testing.assert_close(y[:, :2], module.output(module.null_value).expand(2, 2, -1))


def test_folding_needs_the_projections():
    w = Workload(batch=1, seq_len=4096, width=16, heads=4, level=Level.CORE)
    assert "no separate core" in CARD.refusal("folded", Config(), w)
    assert CARD.default(Config(), w) == "sdpa"


def test_the_default_is_folded_once_a_batch_has_many_tokens_in_however_many_sequences():
    w = Workload(batch=12, seq_len=8, width=16, heads=4, level=Level.ATTENTION)
    assert CARD.default(Config(compression=3), w) == "folded"
    assert CARD.default(Config(compression=4), w) == "sdpa"
