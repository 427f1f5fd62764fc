"""Nyströmformer: segments and the pseudo-inverse."""

import pytest
import torch

from attnbench.mechanisms.nystromformer import segment_sums
from tests.mechanisms.building import core, qkv


@pytest.mark.parametrize("form", ["eager", "sdpa"])
def test_with_equal_tokens_in_each_segment_it_is_softmax_attention(form):
    """The landmarks then lose no information, and F A⁺ W is exact."""
    q, k, _ = (t.repeat_interleave(3, 2) for t in qkv(6))
    v = qkv(18)[2]
    o = core("nystromformer", form, seq_len=18, landmarks=6, iterations=25, conv_kernel=0).attend(
        q, k, v, None
    )
    torch.testing.assert_close(o, (q @ k.mT / 2).softmax(-1) @ v, rtol=1e-6, atol=1e-6)


def test_the_iteration_converges_to_the_pseudo_inverse():
    q, k, _ = qkv(6)
    A = (q @ k.mT / 2).softmax(-1)
    Z = core("nystromformer", seq_len=24, landmarks=6, iterations=40).inverse(A)
    torch.testing.assert_close(Z, torch.linalg.pinv(A), rtol=1e-6, atol=1e-6)


def test_segments_differ_by_at_most_one_token_and_longer_ones_come_last():
    x = torch.arange(14.0)[:, None]
    sums = segment_sums(x, 4).flatten().tolist()
    assert sums == [0 + 1 + 2, 3 + 4 + 5, 6 + 7 + 8 + 9, 10 + 11 + 12 + 13]
    assert segment_sums(x, 7).flatten().tolist() == [1, 5, 9, 13, 17, 21, 25]


def test_a_segment_of_padding_is_no_landmark():
    q, k, v = qkv(24)
    mask = (torch.arange(24) < 12).expand(2, 24)
    long = core("nystromformer", seq_len=24, landmarks=8, conv_kernel=3)
    short = core("nystromformer", seq_len=12, landmarks=4, conv_kernel=3)
    short.load_state_dict(long.state_dict())
    o = long.attend(q, k, v, mask)[:, :, :12]
    expected = short.attend(q[:, :, :12], k[:, :, :12], v[:, :, :12], None)
    torch.testing.assert_close(o, expected)


def test_the_convolution_adds_neighbouring_values_of_each_head():
    q, k, v = qkv(24)
    module = core("nystromformer", seq_len=24, landmarks=4, conv_kernel=3)
    plain = core("nystromformer", seq_len=24, landmarks=4, conv_kernel=0).attend(q, k, v, None)
    taps = module.conv.weight[:, 0, :, 0]  # [H, 3]
    before = torch.nn.functional.pad(v, (0, 0, 1, 0))[:, :, :-1]
    after = torch.nn.functional.pad(v, (0, 0, 0, 1))[:, :, 1:]
    terms = zip((before, v, after), taps.T[:, :, None, None], strict=True)
    added = sum(weight * value for value, weight in terms)
    torch.testing.assert_close(module.attend(q, k, v, None), plain + added)
