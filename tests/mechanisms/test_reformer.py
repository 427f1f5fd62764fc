"""Reformer: sums of weights, and hashes."""

import pytest
import torch

from tests.mechanisms.building import build, core


@pytest.mark.parametrize("form", ["eager", "chunked"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("options", "seq_len"),
    [
        ({}, 1),
        ({}, 200),
        ({"within_bucket": True}, 200),
        ({"chunk": 4, "buckets": 128}, 64),
        ({"chunk": 4, "rounds": 1, "within_bucket": True}, 30),
    ],
)
@pytest.mark.parametrize(
    "dtype",
    [
        *(pytest.param(each, marks=pytest.mark.long) for each in (torch.float64, torch.float16)),
        torch.float32,
        torch.bfloat16,
    ],
)
def test_all_weights_of_a_token_sum_to_1_in_every_number_type(
    form, causal, options, seq_len, dtype
):
    module = core("reformer", form, seq_len=seq_len, causal=causal, **options).to(dtype)
    q = torch.randn(2, 4, seq_len, 4).to(dtype)
    v = torch.ones_like(q, requires_grad=True)
    mask = torch.arange(seq_len) < torch.tensor([[seq_len], [-(-seq_len // 2)]])
    o = module.attend(q, q, v, mask)[mask[:, None].expand(2, 4, -1)]
    torch.testing.assert_close(o, torch.ones_like(o), rtol=3 * torch.finfo(dtype).eps, atol=0)
    (gradient,) = torch.autograd.grad(o.sum(), v)
    total = gradient.double().sum().item()
    assert total == pytest.approx(o.numel(), rel=3 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("form", ["eager", "chunked"])
@pytest.mark.parametrize("rounds", [2, 3])
def test_rounds_share_no_bucket_though_all_tokens_hash_to_0(form, rounds):
    options = {"chunk": 2, "rounds": rounds, "buckets": 2, "within_bucket": True}
    module = core("reformer", form, seq_len=6, **options)
    q, v = torch.zeros(2, 4, 6, 4, dtype=torch.float64), torch.randn(2, 4, 6, 4).double()
    o = module.attend(q, q, v, None)
    assert (module.buckets == 0).all()
    for i in range(6):  # reads its chunk but itself, and the chunk before, if in the same round
        read = [j for j in range(i // 2 * 2 - 2, i // 2 * 2 + 2) if j >= 0 and j != i]
        torch.testing.assert_close(o[:, :, i], v[:, :, read].mean(2))


def test_equal_directions_share_a_bucket_and_opposite_ones_do_not():
    module = build("reformer", seq_len=3, rounds=8, buckets=256)
    q = torch.randn(1, 4, 1, 4, dtype=torch.float64)
    buckets = module.hash(torch.cat([q, 3 * q, -q], 2), None)  # [1, H, R, 3]
    assert (buckets[..., 0] == buckets[..., 1]).all()
    assert (buckets[..., 0] != buckets[..., 2]).all()
    assert 0 <= buckets.min() <= buckets.max() < 256


def test_every_bucket_can_occur_and_padding_comes_last():
    module = build("reformer", seq_len=4000, rounds=4, buckets=128)
    q = torch.randn(2, 4, 4000, 4, dtype=torch.float64)
    mask = torch.arange(4000) < torch.tensor([[4000], [100]])
    buckets = module.hash(q, mask)
    assert set(buckets[0].unique().tolist()) <= set(range(128))
    assert len(buckets[0].unique()) > 100
    assert (buckets[1, :, :, 100:] == 128).all()


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("form", ["eager", "chunked"])
def test_one_token_in_one_round_is_read(rounds, form):
    module = build("reformer", form, seq_len=1, rounds=rounds)
    x = torch.randn(2, 1, 16, dtype=torch.float64, requires_grad=True)
    y = module(x)
    torch.testing.assert_close(y, module.output(module.value(x)))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.any()
