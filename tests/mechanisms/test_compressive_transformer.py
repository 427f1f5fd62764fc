"""Compressive Transformer: limit cases, auxiliary loss, and which tokens most_used keeps."""

import pytest
import torch

from tests.mechanisms.building import build

NAME = "compressive_transformer"


def plain(module, seq_len=24, **options):
    """Transformer-XL with the same parameters."""
    other = build("transformer_xl", seq_len=seq_len, **options)
    other.load_state_dict(module.state_dict(), strict=False)
    return other


@pytest.mark.parametrize(
    ("compressed", "compression"), [(0, "conv"), (6, "mean"), (6, "max"), (6, "most_used")]
)
@pytest.mark.parametrize("masked", [False, True])
def test_slots_of_one_token_are_a_longer_memory(compressed, compression, masked):
    options = {"segment": 4, "memory": 4, "rate": 1, "compression": compression}
    module = build(NAME, seq_len=24, compressed=compressed, **options)
    x = torch.randn(2, 24, 16, dtype=torch.float64)
    mask = torch.arange(24) < torch.tensor([[24], [17]]) if masked else None
    y, expected = module(x, mask), plain(module, segment=4, memory=4 + compressed)(x, mask)
    real = mask if masked else torch.ones(2, 24, dtype=torch.bool)
    torch.testing.assert_close(y[real], expected[real])


def test_most_used_keeps_the_tokens_that_the_next_segment_reads_most():
    module = build(
        NAME, seq_len=12, segment=4, memory=4, compressed=2, rate=2, compression="most_used"
    )
    x = torch.randn(2, 12, 16, dtype=torch.float64)
    module(x)
    attend = plain(module, 12, segment=4, memory=4)
    rows = attend.split(attend.value(x))
    used = torch.zeros(2, 12, dtype=torch.float64)
    for j in range(4):
        # the weights of token j alone: values that are 1 there and 0 elsewhere
        v = torch.zeros_like(rows)
        v[:, :, j] = 1
        o = attend.attend(attend.split(attend.query(x)), attend.split(attend.key(x)), v, None)
        used[:, j] = o[:, :, 4:8, 0].sum((1, 2))
    for b in range(2):
        best = used[b, :4].topk(2).indices.sort().values
        assert torch.equal(module.draws(b)["kept"], best)


def content_attention(q, k, v):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


def test_the_loss_is_the_error_of_reading_slots_instead_of_tokens():
    module = build(NAME, seq_len=12, segment=4, memory=4, compressed=4, rate=2).train()
    x = torch.randn(2, 12, 16, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(12) < torch.tensor([[12], [7]])
    module(x, mask)
    loss = module.auxiliary_loss()

    def heads(t):
        return t.view(-1, 4, 4).transpose(0, 1)

    old = x[:, :4]  # leave after the second segment; all of them are real
    errors = []
    for b in range(2):
        slots = module.compress(old[b].reshape(2, 32))
        queries = heads(module.query(x[b, 4:8][mask[b, 4:8]]))
        target = content_attention(queries, heads(module.key(old[b])), heads(module.value(old[b])))
        guess = content_attention(queries, heads(module.key(slots)), heads(module.value(slots)))
        errors.append((guess - target).square().transpose(0, 1).flatten(1))
    torch.testing.assert_close(loss, torch.cat(errors).mean())
    loss.backward()
    assert x.grad is None
    assert module.key.weight.grad is None
    assert module.compress.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("compression", ["conv", "mean", "max", "most_used"])
def test_only_the_loss_trains_a_compression_and_others_have_none(compression):
    options = {"segment": 4, "memory": 4, "compressed": 4, "compression": compression}
    module = build(NAME, seq_len=24, **options).train()
    module(torch.randn(2, 24, 16, dtype=torch.float64)).sum().backward()
    assert (module.auxiliary_loss() is None) == (compression != "conv")
    assert compression != "conv" or module.compress.weight.grad is None
