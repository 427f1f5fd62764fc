"""Operations that mechanisms share, against loops over single queries and tokens."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention

from attnbench.attention.kernels import primitives
from attnbench.attention.kernels.primitives import (
    biased_attention,
    by_readers,
    fused_attention,
    fused_biased_attention,
    gather_tokens,
    key_mask,
    ordered,
    padded_mask,
    scattered,
    signed_argmax,
    softmax_attention,
    some_at_a_time,
)

lengths = st.integers(1, 9)


def rows(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def by_query(q, k, v, mask, causal):
    """Softmax attention of one query at a time, which sees only its allowed keys."""
    o = torch.zeros_like(q)
    N, S = q.shape[2], k.shape[2]
    for b in range(len(q)):
        for i in range(N):
            keys = [j for j in range(S) if mask is None or mask[b, j]]
            keys = [j for j in keys if not causal or j <= i + S - N]
            for h in range(q.shape[1] if keys else 0):
                weights = (k[b, h, keys] @ q[b, h, i] / q.shape[-1] ** 0.5).softmax(0)
                o[b, h, i] = weights @ v[b, h, keys]
    return o


@pytest.mark.parametrize("attention", [softmax_attention, fused_attention])
@given(
    N=lengths, extra=st.integers(0, 3), causal=st.booleans(), mask=st.none() | st.integers(0, 99)
)
def test_attention_reads_exactly_the_allowed_keys(attention, N, extra, causal, mask):
    # without a mask, the fused kernel is causal only for as many keys as queries
    S = N + (extra if mask is not None else 0)
    q, k, v = rows(1, 2, 3, N, 4), rows(2, 2, 3, S, 4), rows(3, 2, 3, S, 4)
    mask = None if mask is None else rows(mask, 2, S) > 0
    expected = by_query(q, k, v, mask, causal)
    torch.testing.assert_close(attention(q, k, v, key_mask(mask), causal), expected)


@given(queries=lengths, keys=lengths, biased=st.booleans())
def test_biased_attention_and_its_fused_form_agree(queries, keys, biased):
    q, k, v = rows(1, 2, 3, 5, queries, 4), rows(2, 2, 3, 5, keys, 4), rows(3, 2, 3, 5, keys, 4)
    bias = rows(4, 1, 1, 5, 1, keys) if biased else None
    fused = fused_biased_attention(q, k, v, bias)
    torch.testing.assert_close(fused, biased_attention(q, k, v, bias))
    weights = (q[1, 2, 4, 0] @ k[1, 2, 4].T / 2 + (bias[0, 0, 4, 0] if biased else 0)).softmax(0)
    torch.testing.assert_close(fused[1, 2, 4, 0], weights @ v[1, 2, 4])


@given(seq_len=lengths, extra=st.integers(0, 4), masked=st.booleans())
def test_a_padded_mask_adds_padding_at_the_end(seq_len, extra, masked):
    mask = rows(1, 2, seq_len) > 0 if masked else None
    padded = padded_mask(mask, seq_len, extra, torch.device("cpu"))
    if mask is None and extra == 0:
        assert padded is None
        return
    real = torch.ones(1, seq_len, dtype=torch.bool) if mask is None else mask
    assert torch.equal(padded[:, :seq_len], real)
    assert padded.shape[1] == seq_len + extra
    assert not padded[:, seq_len:].any()


@given(groups=st.integers(1, 4), N=lengths, data=st.data())
def test_tokens_are_gathered_within_their_group(groups, N, data):
    x = rows(1, groups, N, 3)
    numbers = st.lists(st.integers(0, N - 1), min_size=groups * 6, max_size=groups * 6)
    index = torch.tensor(data.draw(numbers)).view(groups, 2, 3)
    expected = torch.stack([x[g, index[g]] for g in range(groups)])
    assert torch.equal(gather_tokens(x, index), expected)


@pytest.mark.parametrize("can_share", [True, False])
def test_keys_are_repeated_where_no_fused_kernel_of_a_gpu_shares_them(can_share, monkeypatch):
    """In float32 torch before 2.14 would store all weights of heads that share keys."""
    # that cuDNN's kernel could take them says nothing: on most GPUs it comes after stored weights
    monkeypatch.setattr(torch.backends.cuda, "can_use_cudnn_attention", lambda *_: True)
    first = SDPBackend.EFFICIENT_ATTENTION if can_share else SDPBackend.MATH
    monkeypatch.setattr(torch, "_fused_sdp_choice", lambda *_, **__: first.value)
    asked = []

    def kernel(q, k, v, *, enable_gqa, **_):
        asked.append((k.shape[1], enable_gqa))
        return q

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", kernel)
    with FakeTensorMode():
        q, k = (torch.empty(2, heads, 8, 16, device="cuda") for heads in (6, 2))
        fused_attention(q, k, k, None)
    assert asked == [(2, True) if can_share else (6, False)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n", [1, 2, 32])
def test_a_signed_argmax_is_that_of_numbers_and_their_negatives(n, dtype):
    """No two are alike. References take the choices of a form, and would miss this."""
    order = torch.rand(50, n, generator=torch.Generator().manual_seed(0)).argsort(-1) + 1
    x = torch.where(order % 2 == 0, order, -order).to(dtype).mT / 7
    assert signed_argmax(x).equal(torch.cat([x, -x], -2).argmax(-2))


@pytest.mark.parametrize("rows", [1, 40, 700])  # numbers of 16 bits, and of 32
def test_each_row_is_ordered_by_its_groups_and_equal_ones_stay_in_place(rows):
    groups = torch.randint(50, (rows, 300), generator=torch.Generator().manual_seed(rows))
    order, numbers = ordered(groups, 51)
    assert order.equal(groups.argsort(stable=True, dim=-1))
    own = groups + 51 * torch.arange(rows)[:, None]
    assert numbers.tolist() == own.flatten().tolist()


@pytest.mark.parametrize("most", [1, 3, 7])
@pytest.mark.parametrize("masked", [None, (7, 1, 1, 5), (1, 1, 4, 5), (4, 5)])
def test_some_sequences_at_a_time_give_what_all_give(most, masked):
    torch.manual_seed(0)
    q, k, v = (torch.randn(7, 2, n, 3, dtype=torch.float64) for n in (4, 5, 5))
    mask = None if masked is None else torch.randn(masked, dtype=torch.float64)
    whole = scaled_dot_product_attention(q, k, v, mask)
    found = some_at_a_time(scaled_dot_product_attention, most, q, k, v, mask)
    torch.testing.assert_close(found, whole)


@pytest.mark.parametrize("few", [1, 64, 1 << 20])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_sums_over_readers_are_the_same_in_the_way_of_a_gpu(few, dtype, monkeypatch):
    """One row has no reader, and one most of them."""
    monkeypatch.setattr(primitives, "logits_at_once", lambda device: few)
    torch.manual_seed(0)
    rows = torch.randint(1, 9, (40, 3)).masked_fill(torch.rand(40, 3) < 0.5, 2)
    weighed = [(torch.randn(40, 5, dtype=dtype), torch.randn(40, 3, dtype=dtype)) for _ in "kv"]
    found = scattered(rows, 9, *weighed)
    for sums, (x, weights) in zip(found, weighed, strict=True):
        exact = torch.zeros(9, 5, dtype=torch.float64)
        for i, read in enumerate(rows.tolist()):
            for place, row in enumerate(read):
                exact[row] += weights[i, place].double() * x[i].double()
        assert sums.dtype == dtype
        torch.testing.assert_close(sums, exact.to(dtype))
        if dtype != torch.bfloat16:
            torch.testing.assert_close(sums, by_readers(rows, 9, (x, weights))[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_masks_of_what_norms_give_stay_finite_where_autocast_casts_them(dtype, monkeypatch):
    """A GPU's autocast leaves norms in float32, and casts all that its kernel takes."""
    masks = []
    kernel = torch.nn.functional.scaled_dot_product_attention

    def spied(q, k, v, attn_mask=None, **options):
        masks.append(attn_mask.to(dtype))
        return kernel(q, k, v, attn_mask, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spied)
    allowed = torch.tensor([[[[True, False, False], [False, False, False]]]])
    q = torch.randn(1, 1, 2, 4)
    k = torch.randn(1, 1, 3, 4)
    with torch.autocast("cpu", dtype=dtype):
        o = fused_attention(q, k, k, allowed)
    assert masks[0].isfinite().all()
    assert not o[0, 0, 1].any()
    assert o.isfinite().all()
