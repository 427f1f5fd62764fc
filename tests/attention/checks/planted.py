"""Kernels with one planted fault each, as they slip through where little is tried.

Each computes its mechanism, but for the fault that its name says.
"""

import time

import torch
from torch.nn import functional as F

from attnbench.attention.kernels.recurrence import decay_rule, delta_rule

calls = {"count": 0}
memory = {}


def sdpa(q, k, v, mask=None, causal=False, scale=None):
    """Right, in every mode; the name is that of a form of the mechanism."""
    keys = None if mask is None else mask[:, None, None]
    if causal and keys is not None:
        N = q.shape[2]
        keys = keys & q.new_ones(N, N).tril().bool()
        causal = False
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keys, is_causal=causal, scale=scale)


def scores_of(q, k, causal):
    A = q @ k.mT / q.shape[-1] ** 0.5
    N = q.shape[2]
    return A.masked_fill(q.new_ones(N, N).triu(1).bool(), float("-inf")) if causal else A


# sizes


def keys_dropped_but_for_d_32(q, k, v):
    kept = slice(None) if q.shape[-1] == 32 else slice(0, 64)
    return sdpa(q, k[:, :, kept], v[:, :, kept])


def scale_of_d_32(q, k, v):
    return sdpa(q, k, v, scale=32**-0.5)


def heads_after_the_fourth(q, k, v):
    o = sdpa(q, k, v)
    return torch.cat([o[:, :4], o[:, :4].repeat(1, -(-(o.shape[1] - 4) // 4), 1, 1)], 1)[
        :, : o.shape[1]
    ]


def batch_above_two(q, k, v):
    o = sdpa(q, k, v)
    return torch.cat([o[:2], o[:1].expand(max(0, len(o) - 2), -1, -1, -1)])[: len(o)]


def keys_beyond_the_panel(q, k, v):
    return sdpa(q, k[:, :, :600], v[:, :, :600])


def tail_unmasked(q, k, v):
    pad = -q.shape[2] % 64
    k, v = (F.pad(t, (0, 0, 0, pad)) for t in (k, v))
    return sdpa(q, k, v)


def lost_at_odd_lengths(q, k, v):
    return sdpa(q, k, v) if q.shape[2] % 2 == 0 else 0.99 * sdpa(q, k, v)


def one_token_is_zero(q, k, v):
    return sdpa(q, k, v) if q.shape[2] > 1 else torch.zeros_like(v)


def wrong_at_d_128(q, k, v):
    return sdpa(q, k, v) if q.shape[-1] < 128 else sdpa(q[..., :64], k[..., :64], v)


def wrong_at_d_64(q, k, v):
    return sdpa(q, k, v, scale=0.12) if q.shape[-1] == 64 else sdpa(q, k, v)


def last_head_is_the_first(q, k, v):
    o = sdpa(q, k, v)
    return torch.cat([o[:, :-1], o[:, :1]], 1)


def third_sequence_is_zero(q, k, v):
    keep = (torch.arange(len(q)) != 2).to(q)
    return sdpa(q, k, v) * keep[:, None, None, None]


def widths_of_powers_of_two(q, k, v):
    """Tiles that are not masked where d is no power of two."""
    d = q.shape[-1]
    whole = 1 << (d.bit_length() - 1)
    return sdpa(q[..., :whole], k[..., :whole], v, scale=d**-0.5)


def batch_of_the_first_call(q, k, v):
    known = calls.setdefault(("batch", *q.shape[1:]), len(q))
    o = sdpa(q, k, v)
    return o * (torch.arange(len(q)) < known).to(q)[:, None, None, None]


# modes


def mask_one_ahead(q, k, v, causal=False):
    if not causal:
        return sdpa(q, k, v)
    N = q.shape[2]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=q.new_ones(N, N).tril(1).bool())


def diagonal_missing(q, k, v, causal=False):
    if not causal:
        return sdpa(q, k, v)
    N = q.shape[2]
    seen = q.new_ones(N, N).tril(-1)
    seen[0, 0] = 1
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen.bool())


def mask_after_softmax(q, k, v, is_causal=False):
    A = scores_of(q, k, False).softmax(-1)
    return (A.tril() if is_causal else A) @ v


def causal_is_ignored(q, k, v, causal=False):
    return sdpa(q, k, v)


def always_causal_though_told(q, k, v, is_causal=False):
    return sdpa(q, k, v, causal=True)


def mask_is_ignored(q, k, v, mask=None):
    return sdpa(q, k, v)


def mask_only_at_the_end(q, k, v, mask=None, causal=False):
    if mask is not None:
        mask = mask.flip(1).cummax(1).values.flip(1)
    return sdpa(q, k, v, mask, causal)


def mask_of_the_first_sequence(q, k, v, key_padding_mask=None):
    if key_padding_mask is None:
        return sdpa(q, k, v)
    return sdpa(q, k, v, ~key_padding_mask[1:2].expand(len(q), -1))


def padding_enters_the_sum(q, k, v, attn_mask=None):
    A = scores_of(q, k, False)
    if attn_mask is not None:
        A = A * attn_mask
    return A.softmax(-1) @ v


# mappings


def interleaved_heads(q, k, v, causal=False):
    group = q.shape[1] // k.shape[1]
    return sdpa(q, k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1), causal=causal)


def values_interleaved(q, k, v):
    group = q.shape[1] // k.shape[1]
    return sdpa(q, k.repeat_interleave(group, 1), v.repeat(1, group, 1, 1))


def groups_of_four(q, k, v):
    h = torch.arange(q.shape[1]) // 4 % k.shape[1]
    return sdpa(q, k[:, h], v[:, h])


# calls, types and inputs


def every_fortieth_call(q, k, v):
    calls["count"] += 1
    return sdpa(q, k, v) * (1.5 if calls["count"] % 40 == 0 else 1.0)


def second_call_is_half(q, k, v):
    calls[q.shape] = calls.get(q.shape, 0) + 1
    return sdpa(q, k, v) * (0.5 if calls[q.shape] == 2 else 1.0)


def type_of_later_calls(q, k, v):
    calls["type"] = calls.get("type", 0) + 1
    o = sdpa(q, k, v)
    return o if calls["type"] % 50 else o.double()


def wider_output(q, k, v):
    return sdpa(q, k, v).double()


def scaled_in_place(q, k, v):
    q *= q.shape[-1] ** -0.5
    return sdpa(q, k, v, scale=1.0)


def values_zeroed_after(q, k, v):
    o = sdpa(q, k, v)
    v.detach().zero_()
    return o


def keys_halved_after(q, k, v):
    o = sdpa(q, k, v)
    with torch.no_grad():
        k.mul_(0.5)
    return o


def narrower_output(q, k, v):
    return sdpa(q, k, v).half()


def remembers_rightly(q, k, v):
    """Right: gives again what it gave for the same numbers, all of which it compares."""
    known = memory.get(q.shape)
    if q.requires_grad or known is None or not all(map(torch.equal, known, (q, k, v))):
        o = sdpa(q, k, v)
        memory[q.shape] = (*(t.detach().clone() for t in (q, k, v)), o.detach())
        return o
    return known[-1].clone()


def lazy_in_the_end(q, k, v):
    """Does its work in its first 2,600 calls, more than are made of one process before a race."""
    calls["lazy"] = calls.get("lazy", 0) + 1
    return sdpa(q, k, v) if calls["lazy"] < 2600 else v.clone()


def fails_in_the_end(q, k, v):
    calls["failing"] = calls.get("failing", 0) + 1
    if calls["failing"] > 2600:
        raise ValueError("out of workspace")
    return sdpa(q, k, v)


def remembers_by_address(q, k, v):
    key = (q.data_ptr(), q.shape, v.requires_grad)
    if key not in memory or q.requires_grad:
        memory.clear()
        memory[key] = sdpa(q, k, v)
    return memory[key]


def remembers_by_a_number(q, k, v):
    key = (float(q.flatten()[0]), q.shape)
    if key not in memory or q.requires_grad:
        memory.clear()
        memory[key] = sdpa(q, k, v)
    return memory[key]


# rows and gradients


def late_rows_off(q, k, v):
    o = sdpa(q, k, v, causal=True)
    late = (torch.arange(q.shape[2]) >= 300).to(q) * 1e-4
    return o * (1 + late[:, None])


def late_rows_in_bfloat16(q, k, v):
    o = sdpa(q, k, v, causal=True)
    cut = 3 * q.shape[2] // 4
    return torch.cat([o[:, :, :cut], o[:, :, cut:].bfloat16().to(o)], 2)


def softcapped(q, k, v):
    """Logits are bounded at 50, as in Gemma 2, which changes usual ones by little."""
    A = 50 * (scores_of(q, k, False) / 50).tanh()
    return A.softmax(-1) @ v


def old_keys_dropped(q, k, v):
    N = q.shape[2]
    seen = q.new_ones(N, N).tril()
    seen[N // 2 :, : N // 16] = 0
    seen.fill_diagonal_(1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen.bool())


def decays_of(q):
    H = q.shape[1]
    return (1 - 2.0 ** (-5 - torch.arange(H, dtype=torch.float64))).log().to(q)


def retained(q, k, v):
    """Right: retention with its own decays, [B, H, N, d]."""
    g = decays_of(q)[None, :, None].expand(len(q), -1, q.shape[2])
    S = q.new_zeros(*q.shape[:2], q.shape[-1], 1, v.shape[-1])
    return decay_rule(S, g, q, k, v, 32)[0]


def queries_detached_late(q, k, v, g):
    q = torch.cat([q[:, :, :64], q[:, :, 64:].detach()], 2)
    S = q.new_zeros(*q.shape[:2], q.shape[-1], 1, v.shape[-1])
    return decay_rule(S, g, q, k, v, 32)[0]


def one_head_of_keys_detached(q, k, v):
    k = torch.cat([k[:, :1].detach(), k[:, 1:]], 1)
    return sdpa(q, k, v)


def gradient_of_keys_scaled(q, k, v):
    return sdpa(q, 0.98 * k + 0.02 * k.detach(), v)


def queries_detached_beyond_the_panel(q, k, v):
    return sdpa(q if q.shape[2] <= 512 else q.detach(), k, v)


def gradient_of_values_doubled(q, k, v):
    return sdpa(q, k, 2 * v - v.detach())


def decays_detached(q, k, v, g, beta):
    S = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    return delta_rule(S, g.detach(), q, k, v, beta, 32)[0]


def twice_the_output(q, k, v, g, beta):
    S = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    return 2 * delta_rule(S, g, q, k, v, beta, 32)[0]


def step_of_the_next_token(x, dt, A, B, C):
    dt = torch.cat([dt[:, :, :1], dt[:, :, :-1]], 2)
    return ssm(x, dt, A, B, C)


def ssm(x, dt, A, B, C):
    """Right: a state space by its symbols, [B, H, N, p]."""
    S = x.new_zeros(*x.shape[:2], B.shape[-1], 1, x.shape[-1])
    return decay_rule(S, A[:, None] * dt, C, B, dt[..., None] * x, 32)[0]


def rwkv(r, w, k, v, a, b):
    """Right: RWKV-7 token by token, [B, H, N, d]."""
    S = r.new_zeros(*r.shape[:2], r.shape[-1], v.shape[-1])
    outputs = []
    for t in range(r.shape[2]):
        read = (a[:, :, t, :, None] * S).sum(2, keepdim=True)
        S = w[:, :, t].exp()[..., None] * S + b[:, :, t, :, None] * read
        S = S + k[:, :, t, :, None] * v[:, :, t, None]
        outputs.append((r[:, :, t, :, None] * S).sum(2))
    return torch.stack(outputs, 2)


def bound_at_minus_five(q, k, v, g, beta):
    """Right for logs of decays of at least −5, where the gradient is 0, as torch 2.14 clamps."""
    S = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    return delta_rule(S, torch.where(g > -5, g, -5), q, k, v, beta, 32)[0]


def grouped(q, k, v, is_causal=False):
    """Right: groups of consecutive heads share keys."""
    group = q.shape[1] // k.shape[1]
    return sdpa(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), causal=is_causal)


def only_d_64(query, key, value):
    """Right, for heads of width 64 alone."""
    if query.shape[-1] != 64:
        raise ValueError(f"written for d = 64, not {query.shape[-1]}")
    return sdpa(query, key, value)


def wrong_without_gradients(q, k, v):
    """Beyond the panel, and only as inference calls it."""
    o = sdpa(q, k, v)
    return o if torch.is_grad_enabled() or q.shape[2] <= 512 else 0.9 * o


def strides_of_whole_tensors(q, k, v):
    """It reads the keys as if nothing else were stored between them."""
    strides = [k[0, 0].numel() * k.shape[1], k[0, 0].numel(), k.shape[-1], 1]
    return sdpa(q, torch.as_strided(k, k.shape, strides, k.storage_offset()), v)


def mask_is_ignored_in_blocks(q, k, v, mask=None):
    if q.shape[2] % 64:
        raise ValueError("N is no multiple of 64")
    return sdpa(q, k, v)


class InPlace(torch.autograd.Function):
    """Gives what it gets; its backward pass zeroes `zeroed`, or the gradient that it gets."""

    @staticmethod
    def forward(ctx, x, zeroed):
        ctx.zeroed = zeroed
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        kept = gradient.clone()
        (gradient if ctx.zeroed is None else ctx.zeroed).zero_()
        return kept, None


def gradient_zeroed_in_backward(q, k, v):
    return InPlace.apply(sdpa(q, k, v), None)


def keys_zeroed_in_backward(q, k, v):
    o = sdpa(q, k.clone(), v)
    return InPlace.apply(o, k.detach())


def odd_lengths_wrong_and_refused_without_gradients(q, k, v):
    if not torch.is_grad_enabled() and q.shape[2] % 64:
        raise ValueError("N is no multiple of 64")
    return lost_at_odd_lengths(q, k, v)


def refused_without_gradients(q, k, v):
    """Right, where it answers."""
    if not torch.is_grad_enabled() and q.shape[2] % 64:
        raise ValueError("N is no multiple of 64")
    return sdpa(q, k, v)


def wider_with_gradients(q, k, v):
    o = sdpa(q, k, v)
    return o.float() if torch.is_grad_enabled() else o


def graph_lost_in_the_middle(q, k, v):
    o = sdpa(q, k, v)
    return o.detach() if q.shape[2] == 100 else o


def hangs(q, k, v):
    while q.shape[2] == 100:
        pass
    return sdpa(q, k, v)


def waits(q, k, v):
    """Right, and slow."""
    time.sleep(1.0)
    return sdpa(q, k, v)


def detects_anomalies(q, k, v):
    torch.autograd.set_detect_anomaly(True)
    return sdpa(q, k, v)
