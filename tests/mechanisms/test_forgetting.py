"""Forgetting attention: decays in long sequences and beside padding."""

import math

import pytest
import torch

from attnbench.mechanisms.forgetting import CARD
from tests.mechanisms.building import build, core, qkv, workload


def gradients(form, dtype, exact=torch.bfloat16):
    """Outputs and gradients of parameters at N = 1,025, from numbers that all types represent."""
    module = build("forgetting", form, batch=1, seq_len=1025, width=32).to(exact).to(dtype)
    with torch.no_grad():
        module.b.copy_(torch.tensor([0.0, -1.0, -3.0, 4.0]))  # from strong decays to weak ones
    x, towards = torch.randn(2, 1, 1025, 32).to(exact).to(dtype)
    o = module(x)
    (o * towards).sum().backward()
    return {"o": o.detach(), **{name: p.grad for name, p in module.named_parameters()}}


@pytest.mark.parametrize(("dtype", "allowed"), [(torch.float32, 1e-6), (torch.bfloat16, 3e-2)])
def test_long_sequences_lose_no_digits(dtype, allowed):
    """Sums of logs reach thousands; what matters of them are differences of small numbers."""
    exact, found = gradients("eager", torch.float64), gradients("sdpa", dtype)
    largest = max(exact[name].abs().max() for name in exact if name != "o")
    for name, expected in exact.items():
        size = expected.abs().max() if name == "o" else largest
        assert (found[name].double() - expected).abs().max() < allowed * size, name


DECAYS = {
    "of every size": (-1e-6, -1e-3, -0.1, -1.0, -5.0, -15.0, -40.0, -100.0),
    "strong ones alone": (-15.0, -40.0, -100.0),
    "one in a while": (*(-1e-6,) * 30, -100.0),
    "weak ones": (-1e-6, -1e-4, -1e-2),
}


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("mix", DECAYS)
def test_mixes_of_decays_cost_no_digits(mix, width):
    """Each of o, dq, dk, dv and the gradients of logs relative to its own size, in float32.

    Beside strong decays alone no gradient of logits is left but what kernels round.
    """
    exact, by_sdpa = (mixed_gradients(*how, DECAYS[mix], width) for how in FLOAT32)
    largest = max(x.abs().max() for x in exact.values())
    for name, expected in exact.items():
        size = largest if mix == "strong ones alone" else expected.abs().max()
        error = (by_sdpa[name] - expected).abs().max() / size
        assert error < 1e-6, f"{name}: {error:.1e}"


FLOAT32 = ("eager", torch.float64), ("sdpa", torch.float32)


def mixed_gradients(form, dtype, logs, width):
    """The output and gradients of 300 tokens, from float32 numbers; the last of logs of decays."""
    generator = torch.Generator().manual_seed(2)
    g = torch.tensor(logs).double()[torch.randint(len(logs), (1, 4, 300), generator=generator)]
    f = -(-g).expm1().log()  # log σ(f) = g
    shape = 4, 1, 4, 300, width // 4
    *inputs, towards = torch.randn(shape, generator=generator, dtype=torch.float64).unbind()
    module = core("forgetting", form, seq_len=300, width=width).to(dtype)
    leaves = [x.float().to(dtype).requires_grad_() for x in (*inputs, f)]
    o = module.attend(*leaves, None)
    found = torch.autograd.grad((o * towards.float().to(dtype)).sum(), leaves)
    gradients = [o.detach(), *found[:3], found[3].double() / -g.expm1()]
    return dict(zip(("o", "q", "k", "v", "g"), (x.double() for x in gradients), strict=True))


@pytest.mark.parametrize("form", CARD.forms)
def test_padding_between_tokens_fades_nothing(form):
    """Outputs are those of the sequence without the padding, whatever its x W_F is."""
    module, real = core("forgetting", form, seq_len=90), torch.rand(90) < 0.7
    inputs = [*qkv(90), torch.randn(2, 4, 90).double()]
    alone = module.attend(*(t[:, :, real] for t in inputs), None)
    padded = module.attend(*inputs, real.expand(2, -1))
    torch.testing.assert_close(padded[:, :, real], alone)


@pytest.mark.parametrize("form", CARD.forms)
def test_a_key_that_faded_far_counts_if_its_logit_is_large(form):
    """The last query finds the first key at 160 / √d = 80, after 199 tokens that fade by 0.4."""
    module = core("forgetting", form, seq_len=200)
    q, k, v = torch.zeros(3, 2, 4, 200, 4).double()
    q[:, :, -1], k[:, :, 0], v[:, :, 0] = 10, 4, 1
    f = torch.full((2, 4, 200), -math.log(math.expm1(0.4))).double()
    with torch.no_grad():
        module.b.zero_()
        o = module.attend(q, k, v, f, None)
    others = sum(math.exp(-0.4 * n) for n in range(199))
    expected = math.exp(80 - 0.4 * 199)
    torch.testing.assert_close(o[:, :, -1], v[:, :, 0] * expected / (expected + others))


def test_weights_are_zeros_rather_than_numbers_that_a_processor_needs_long_for():
    module = core("forgetting", "sdpa", seq_len=300).float()
    q, k, v = (0.1 * torch.randn(3, 2, 4, 300, 4)).unbind()
    o = module.attend(q, k, v.requires_grad_(), torch.zeros(2, 4, 300), None)
    (weights,) = torch.autograd.grad(o[:, :, -1].sum(), v)
    assert (weights[:, :, 0] == 0).all()
    assert weights[weights != 0].min() > torch.finfo(torch.float32).tiny


def test_roots_of_widths_keep_the_digits_of_their_type():
    """√6 is not a number of float32, which numbers in Python become beside a mask."""
    eager, sdpa = (build("forgetting", form, seq_len=40, width=24) for form in CARD.forms)
    sdpa.load_state_dict(eager.state_dict())
    x = torch.randn(2, 40, 24).double()
    torch.testing.assert_close(sdpa(x), eager(x), rtol=0, atol=1e-12)


def test_predicted_elements_are_those_of_columns_and_of_the_mask_of_a_block():
    """Beside a head of 4: 4 columns for groups, a fine one, one of the query; of q, k, v and o."""
    w = workload("forgetting", seq_len=300)
    assert CARD.forms["sdpa"].elements(CARD.config(), w) == 4 * (2 * 300 * 4 * 10) + 128 * 300


@pytest.mark.parametrize("seq_len", [60, 130, 300])
def test_gradients_in_bfloat16_are_nearly_as_right_as_those_of_eager(seq_len):
    """Each relative to its own size, those of decays too: sums over all later tokens."""
    found = [bfloat16_gradients(*how, seq_len) for how in BFLOAT16]
    for name, exact in found[0].items():
        by_eager, by_sdpa = ((each[name] - exact).abs().max() for each in found[1:])
        assert by_sdpa < 3 * by_eager, f"{name}: {by_sdpa / by_eager:.1f} times"


BFLOAT16 = ("eager", torch.float64), ("eager", torch.bfloat16), ("sdpa", torch.bfloat16)


def bfloat16_gradients(form, dtype, seq_len):
    """Gradients of tokens and parameters that are bfloat16, in a type of their own."""
    module = build("forgetting", form, batch=2, seq_len=seq_len, width=16)
    module = module.to(torch.bfloat16).to(dtype)
    x, towards = torch.randn(2, 2, seq_len, 16).bfloat16().to(dtype)
    x.requires_grad_()
    (module(x) * towards).sum().backward()
    parameters = {name: p.grad.double() for name, p in module.named_parameters()}
    return {"x": x.grad.double(), **parameters}
