"""What only a GPU answers: the digits of its kernels, and which of them run.

Each test records what it found, and asserts the least.
"""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from attnbench.devices.finding import find
from attnbench.devices.protocol import Unavailable
from attnbench.measuring.energy import STILL_S, step
from attnbench.measuring.worker import Worker
from attnbench.records import PASSES, Level, Mode
from tests.measuring.cases import case, sent

pytestmark = pytest.mark.gpu

DTYPES = ("float32", "bfloat16", "float16")
WIDE = {"batch": 4, "seq_len": 1024, "heads": 4, "level": Level.CORE}
SEQUENCES = {"batch": 16, "seq_len": 1024, "heads": 4}
STEPS = 20


def on_gpu(tested, **changes):
    return replace(tested, workload=replace(tested.workload, device="cuda", **changes))


def relative(found, exact):
    return ((found.double() - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize("allowed", [True, False])
def test_whether_convolutions_and_products_are_exact_in_float32(answer, allowed, monkeypatch):
    answer("usual settings (cudnn, matmul)",
           (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32))  # fmt: skip
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
    x, w = torch.randn(8, 64, 512, device="cuda"), torch.randn(64, 64, 5, device="cuda")
    a, b = torch.randn(2, 512, 512, device="cuda")
    answer(f"error of a convolution, TF32 {allowed}",
           relative(F.conv1d(x, w), F.conv1d(x.double(), w.double())))  # fmt: skip
    product = relative(a @ b, a.double() @ b.double())
    answer("error of a matrix product", product)
    assert product < 1e-5, "matrix products in float32 are not exact"


def test_how_often_the_counter_of_energy_moves(answer):
    try:
        moments = [step(find("cuda").joules) for _ in range(STEPS)]
    except Unavailable as error:
        pytest.skip(str(error))
    apart = (moments[-1][0] - moments[0][0]) / (STEPS - 1)
    answer("time between two steps of the counter of energy, s", apart)
    assert apart < STILL_S


def test_what_an_iteration_consumes(answer):
    one = on_gpu(case("transformer", level=Level.ATTENTION, width=256, **SEQUENCES))
    worker = Worker(None, seed=0)
    for do, asked in (("build", {**sent(one), "energy": True}), ("lap", {"iterations": 5})):
        assert worker.answer(do, **asked)["outcome"] == "ok"
    found = worker.answer("finish")
    answer("energy of an iteration", {**found["values"], **found["notes"]})
    assert "energy" in found["notes"] or found["values"]["energy_j"] > 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_width", [16, 64, 128])
def test_which_kernels_compute_fused_attention(answer, dtype, head_width):
    for more in ({}, {"causal": True}, {"padding": 0.3}):
        one = case("transformer", "sdpa", width=4 * head_width, mode=Mode.TRAINING, **WIDE, **more)
        found = Worker(None, seed=0, measures_memory=True).answer(
            "measure_memory", **sent(on_gpu(one, dtype=dtype))
        )
        assert found["outcome"] == "ok", found
        answer(f"d = {head_width}, {dtype}, {more or 'plain'}", found["notes"])
        assert found["notes"]["attention_kernel"]


@pytest.mark.parametrize("mode", PASSES)
@pytest.mark.parametrize("form", ["flex", "xformers"])
def test_whether_other_forms_of_attention_can_be_weighed(answer, form, mode):
    one = on_gpu(case("transformer", form, width=64, mode=mode, **WIDE))
    found = Worker(None, seed=0, measures_memory=True).answer("measure_memory", **sent(one))
    answer(f"{form} in {mode}", {key: found.get(key) for key in ("outcome", "reason", "notes")})
    assert found["outcome"] in ("ok", "unsupported"), found
