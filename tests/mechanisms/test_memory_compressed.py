"""Memory-compressed attention: which keys are visible, and its default form."""

import pytest
import torch

from tests.mechanisms.building import build, reads

FORMS = ["eager", "sdpa", "folded"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compression", [3, 4])
@pytest.mark.parametrize("seq_len", [1, 2, 3, 11, 12, 13])
def test_a_causal_query_sees_blocks_that_are_complete(form, compression, seq_len):
    options = {"compression": compression, "seq_len": seq_len, "causal": True}
    seen = reads(build("memory_compressed", form, **options), seq_len)
    for i in range(seq_len):
        complete = (i + 1) // compression * compression
        # until the first block is complete there is only the null key
        own = {i} if complete else set()
        assert set(seen[i].nonzero().flatten().tolist()) == set(range(complete)) | own


@pytest.mark.parametrize("form", FORMS)
def test_a_causal_query_without_a_block_gets_the_null_value(form):
    module = build("memory_compressed", form, causal=True)
    torch.nn.init.normal_(module.null_value)
    y = module(torch.randn(2, 20, 16, dtype=torch.float64))
    torch.testing.assert_close(y[:, :2], module.output(module.null_value).expand(2, 2, -1))
