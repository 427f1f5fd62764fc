"""States of fixed size: what training keeps, padding, and decays that forget everything."""

import pytest
import torch

from tests.kept import assert_linear, kept_bytes
from tests.mechanisms.building import build, core, qkv, workload

LEARNED = ("gated_delta_net", "gated_linear", "kimi_delta", "mamba2", "rwkv7")  # rates of decay
CASES = [(name, "chunked", {}) for name in (*LEARNED, "lightning", "retention")]
CASES += [("gated_delta_net", "chunked", {"gate": False}), ("forgetting", "sdpa", {})]
# an input of the core, where in it, and a value there that makes the state forget everything
FORGETTING = (
    ("gated_delta_net", {}, 3, (slice(None), slice(4, None)), 100.0),
    ("gated_linear", {"root": 1.0}, 3, ..., -200.0),
    ("kimi_delta", {}, 4, ..., 1e4),
    ("kimi_delta", {}, 4, (..., 0), 1e4),
    ("mamba2", {"head_width": 8, "state": 6, "chunk": 16}, 3, ..., 200.0),
)


@pytest.mark.parametrize(("name", "form", "options"), CASES)
def test_what_training_keeps_is_linear_in_length(name, form, options):
    def kept(seq_len):
        module = build(name, form, batch=1, seq_len=seq_len, **options).float()
        return kept_bytes(module, torch.randn(1, seq_len, 16))[0]

    assert_linear(kept)


@pytest.mark.parametrize("name", ["kimi_delta", "rwkv7"])
def test_what_the_core_keeps_for_training_is_below_four_times_its_inputs(name):
    sizes = {"batch": 1, "seq_len": 8192, "width": 256, "heads": 16}
    module, w = core(name, "chunked", **sizes).float(), workload(name, **sizes)
    inputs = [torch.randn(shape).requires_grad_() for shape in module.core_inputs(module.config, w)]
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


@pytest.mark.parametrize("form", ["eager", "chunked"])
@pytest.mark.parametrize(("name", "options", "index", "where", "value"), FORGETTING)
def test_what_forgets_everything_before_a_token_stays_finite(
    name, options, index, where, value, form
):
    module = core(name, form, seq_len=40, **options).float()
    shapes = module.core_inputs(module.config, workload(name, seq_len=40))
    inputs = [torch.randn(shape) for shape in shapes]
    inputs[index][where] = value
    inputs = [tensor.requires_grad_() for tensor in inputs]
    o = module.attend(*inputs, None)
    gradients = torch.autograd.grad(o.sum(), [*inputs, *module.parameters()])
    assert all(tensor.isfinite().all() for tensor in (o, *gradients))
    if where != (..., 0):  # where one channel forgets, the others remember
        alone = module.attend(*(tensor[:, :, 7:8] for tensor in inputs), None)
        torch.testing.assert_close(o[:, :, 7:8], alone, rtol=1e-4, atol=1e-4)
    else:
        assert (gradients[index][..., 1:] != 0).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_sums_of_linear_transformer_do_not_overflow_narrow_types(dtype, causal):
    q, k, v = qkv(4096).to(dtype)
    k, v = 20 + k, 20 + v  # their sums pass 65,504 after some 160 tokens
    module = core("linear_transformer", causal=causal, seq_len=4096, chunk=8)
    o = module.attend(q, k, v, None)
    assert o.dtype == dtype
    exact = module.attend(q.double(), k.double(), v.double(), None)
    torch.testing.assert_close(o.double(), exact, rtol=0.02, atol=0)
