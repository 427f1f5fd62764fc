"""α-entmax: its root, and weights of 0."""

import pytest
import torch

from attnbench.mechanisms.adaptively_sparse import AdaptivelySparse, Chunked, Config, threshold
from attnbench.records import Level, Workload
from tests.mechanisms.pretended import Launches, PretendedGpu


@pytest.mark.parametrize("length", [1, 2, 300])
@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 50.0])
@pytest.mark.parametrize("a", [0.01, 0.3, 0.99, 1 - 1e-6])
def test_newton_reaches_the_root(length, spread, a):
    torch.manual_seed(0)
    z = spread * torch.randn(8, length, dtype=torch.float64)
    a = torch.tensor(a, dtype=torch.float64)
    x = a * (z - z.amax(-1, keepdim=True))
    total = ((x - threshold(x, a)).clamp(min=0) ** (1 / a)).sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=1e-11, atol=0)


@pytest.mark.parametrize("start", [-100.0, -0.5, 0.0, 100.0])
@pytest.mark.parametrize("a", [0.01, 0.3, 0.99])
def test_newton_reaches_the_root_from_wherever_it_starts(start, a):
    torch.manual_seed(0)
    a, x = torch.tensor(a, dtype=torch.float64), torch.randn(8, 300, dtype=torch.float64)
    x -= x.amax(-1, keepdim=True)
    tau = threshold(x, a, torch.full((8, 1), start, dtype=torch.float64))
    torch.testing.assert_close(tau, threshold(x, a), rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 50.0])
@pytest.mark.parametrize("a", [0.01, 0.3, 0.99, 1 - 1e-6])
def test_a_gpu_takes_all_steps_and_stays_at_the_root(spread, a, dtype):
    """So that the host need not ask whether steps are small."""
    torch.manual_seed(0)
    z = spread * torch.randn(8, 300, dtype=dtype)
    a = torch.tensor(a, dtype=dtype)
    x = a * (z - z.amax(-1, keepdim=True))
    with PretendedGpu(), Launches() as launches:
        tau = threshold(x, a)
    assert launches.waits == set()
    torch.testing.assert_close(tau, threshold(x, a), rtol=0, atol=20 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("form", [AdaptivelySparse, Chunked])
def test_the_sparsest_head_in_a_narrow_type_has_no_gradient_where_a_weight_is_0(form):
    torch.manual_seed(0)
    module = form(Config(), Workload(batch=1, seq_len=20, width=4, heads=1, level=Level.CORE))
    module.a.data.fill_(20.0)
    q, k, v = torch.randn(3, 1, 1, 20, 4).bfloat16()
    q[..., 1:] = k[..., 1:] = 0
    q[..., 0], k[:, :, :10, 0], k[:, :, 10:, 0] = 8.0, 4.0, -4.0  # the last ten keys get nothing
    (gradient,) = torch.autograd.grad(
        module.bfloat16().attend(q, k.requires_grad_(), v, None).sum(), k
    )
    assert (gradient[:, :, 10:] == 0).all()
