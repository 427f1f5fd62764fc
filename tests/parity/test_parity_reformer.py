"""Reformer against transformers and reformer-pytorch, with equal weights and hashes."""

import warnings

import pytest
import torch

from attnbench.mechanisms.reformer import Chunked, Config, Reformer
from attnbench.records import Level, Workload

FORMS = pytest.mark.parametrize("cls", [Reformer, Chunked])
CHUNK, ROUNDS, BUCKETS = 8, 3, 16


def build(cls, causal, within=False):
    w = Workload(batch=2, seq_len=64, width=32, heads=4, level=Level.ATTENTION, causal=causal)
    torch.manual_seed(0)
    config = Config(chunk=CHUNK, rounds=ROUNDS, buckets=BUCKETS, within_bucket=within)
    return cls(config, w).double()


@FORMS
@pytest.mark.parametrize("causal", [False, True])
def test_transformers(cls, causal):
    pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers import ReformerConfig
    from transformers.models.reformer.modeling_reformer import LSHSelfAttention

    theirs = LSHSelfAttention(
        ReformerConfig(
            hidden_size=32,
            num_attention_heads=4,
            attention_head_size=8,
            lsh_attn_chunk_length=CHUNK,
            lsh_num_chunks_after=0,
            num_hashes=ROUNDS,
            num_buckets=BUCKETS,
            is_decoder=causal,
            lsh_attention_probs_dropout_prob=0.0,
        )
    ).double()
    module = build(cls, causal)
    module.query.weight.data = theirs.query_key.weight.data
    module.value.weight.data = theirs.value.weight.data
    module.output.weight.data = torch.eye(32, dtype=torch.float64)
    x = torch.randn(2, 64, 32, dtype=torch.float64)
    y = module(x)
    buckets = module.buckets + BUCKETS * torch.arange(ROUNDS)[:, None]
    expected = theirs(x, buckets=buckets.flatten(2)).hidden_states
    torch.testing.assert_close(y, expected, rtol=1e-6, atol=1e-8)


@FORMS
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("within", [False, True])
def test_reformer_pytorch_divides_by_the_root_of_the_width(cls, causal, within):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        package = pytest.importorskip(
            "reformer_pytorch.reformer_pytorch", reason="reformer-pytorch is not installed"
        )
    theirs = package.LSHAttention(
        bucket_size=CHUNK, n_hashes=ROUNDS, causal=causal, attend_across_buckets=not within
    )
    module = build(cls, causal, within)
    q, v = torch.randn(2, 2, 4, 64, 8, dtype=torch.float64)
    # their logits are q · k / √d; ours are q · k, as in the authors' code
    y = module.attend(q / 8**0.5, q, v, None)
    # theirs has one bucket per chunk, so any offset above that number separates the rounds
    offset = 1000 * torch.arange(ROUNDS)[:, None]
    buckets = (module.buckets + offset).flatten(0, 1).flatten(1)
    theirs.hash_vectors = lambda *_, **__: buckets
    expected, _, _ = theirs(q.flatten(0, 1), v.flatten(0, 1))
    torch.testing.assert_close(y.flatten(0, 1), expected, rtol=1e-4, atol=1e-4)
