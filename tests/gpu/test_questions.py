"""Questions that only a GPU answers: each test records what it found, and asserts the least."""

import json
import math
import subprocess
import sys
import time
import warnings
from dataclasses import asdict, replace

import pytest
import torch
import torch.nn.functional as F

from attnbench.api.servers import own_server
from attnbench.catalogue.registry import card, names
from attnbench.devices import nvml
from attnbench.devices.finding import find
from attnbench.measure.building import subject_of
from attnbench.measure.worker import Worker
from attnbench.records import PASSES, Level, Mode
from attnbench.verify.trial import ways
from tests.measure.cases import case

pytestmark = pytest.mark.gpu

DTYPES = ("float32", "bfloat16", "float16")
WIDE = {"batch": 4, "seq_len": 1024, "heads": 4, "level": Level.CORE}
STEPS = 20
START = """
import json, time
begun = time.perf_counter()
import torch
imported = time.perf_counter()
free, total = torch.cuda.mem_get_info()
torch.zeros(1, device="cuda")
torch.cuda.synchronize()
ready = time.perf_counter()
before = torch.cuda.memory_allocated()
a = torch.randn(64, 64, device="cuda")
a = a @ a
torch.cuda.synchronize()
workspace = torch.cuda.memory_allocated() - before - 2 * a.nbytes
print(json.dumps({"import_s": imported - begun, "context_s": ready - imported,
    "first_product_s": time.perf_counter() - ready, "workspace_bytes": workspace,
    "context_bytes": total - free}))
"""


def on_gpu(tested, **changes):
    return replace(tested, workload=replace(tested.workload, device="cuda", **changes))


def asked(tested):
    return json.loads(json.dumps(asdict(tested)))


def of_nvml(question):
    """The answer of the library, or why it gives none."""
    try:
        return nvml.ask(find("cuda").uuid(), question)
    except nvml.Unavailable as error:
        return f"no answer: {error}"


def test_what_the_device_is(answer):
    properties = torch.cuda.get_device_properties(0)
    for name in ("name", "uuid", "clock_rate", "L2_cache_size", "total_memory"):
        answer(name, getattr(properties, name, "unknown"))
    answer("NVML's name of it", find("cuda").uuid())
    answer("NVML", nvml.state())
    answer("driver", nvml.driver())


def test_what_a_process_pays_before_it_measures(answer):
    command = [sys.executable, "-c", START]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for name, value in json.loads(done.stdout).items():
        answer(name, value)


def test_what_a_worker_pays_for_its_first_case_and_the_next(answer):
    with own_server(1) as server:
        server.wait()
        begun = time.perf_counter()
        with server.worker() as worker:
            answer("start of a worker, s", time.perf_counter() - begun)
            for number in ("first", "second"):
                begun = time.perf_counter()
                built = worker.ask(300.0, do="build", **asked(on_gpu(case("fastformer"))))
                assert built["outcome"] == "ok", built
                worker.ask(300.0, do="finish")
                answer(f"build of the {number} case, s", time.perf_counter() - begun)


def test_which_clocks_the_driver_tells(answer):
    for name in ("ClockInfo", "MaxClockInfo", "DefaultApplicationsClock", "ApplicationsClock"):
        found = of_nvml(lambda lib, gpu, n=name: getattr(lib, f"nvmlDeviceGet{n}")(gpu, 1))
        answer(f"{name} of the multiprocessors, MHz", found)


def test_how_fast_the_clock_falls_when_the_device_is_idle(answer):
    torch.cuda._sleep(2_000_000_000)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for pause_s in (0.0, 0.05, 0.5, 2.0):
        time.sleep(max(0.0, begun + pause_s - time.perf_counter()))
        clock = of_nvml(lambda lib, gpu: lib.nvmlDeviceGetClockInfo(gpu, lib.NVML_CLOCK_SM))
        answer(f"clock {pause_s:g} s after work, MHz", clock)


def test_whether_reasons_for_lower_clocks_are_counted(answer):
    def counters(lib, gpu):
        prefix = "NVML_FI_DEV_CLOCKS_EVENT_REASON"
        fields = {name: number for name, number in vars(lib).items() if name.startswith(prefix)}
        values = lib.nvmlDeviceGetFieldValues(gpu, [*fields.values()])
        return {
            name.removeprefix(prefix): (value.nvmlReturn, value.value.ullVal)
            for name, value in zip(fields, values, strict=True)
        }

    answer("counters of reasons, (error, value)", of_nvml(counters))


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


@pytest.mark.parametrize("dtype", DTYPES)
def test_whether_training_stays_finite(answer, dtype):
    for name in ("transformer", "fastformer", "linear_transformer", "performer"):
        tested = on_gpu(case(name, level=Level.MODEL, mode=Mode.TRAINING), dtype=dtype)
        subject = subject_of(card(name), tested, seed=0)
        iterate, losses = subject.iteration(), []
        for _ in range(STEPS):
            subject.clear()
            losses.append(iterate(lambda phase: None).item())
        answer(f"loss of {name} in {dtype}, first and last of {STEPS}", (losses[0], losses[-1]))
        assert dtype != "float32" or all(map(math.isfinite, losses))


def test_whether_draws_are_the_same_in_every_type(answer):
    drawn = {}
    for dtype in ("float64", *DTYPES):
        torch.manual_seed(0)
        drawn[dtype] = torch.randn(1000, device="cuda", dtype=getattr(torch, dtype)).double()
    for dtype in DTYPES:
        apart = (drawn[dtype] - drawn["float64"]).abs().max().item()
        answer(f"normal draws in {dtype} and float64 are apart by", apart)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_width", [16, 64, 128])
def test_which_kernels_compute_fused_attention(answer, dtype, head_width):
    for more in ({}, {"causal": True}, {"padding": 0.3}):
        one = case("transformer", "sdpa", width=4 * head_width, mode=Mode.TRAINING, **WIDE, **more)
        found = Worker(None, seed=0, weighs=True).answer("weigh", **asked(on_gpu(one, dtype=dtype)))
        assert found["outcome"] == "ok", found
        answer(f"d = {head_width}, {dtype}, {more or 'plain'}", found["notes"])
        assert found["notes"]["attention_kernel"]


@pytest.mark.parametrize("mode", PASSES)
@pytest.mark.parametrize("form", ["flex", "xformers"])
def test_whether_other_forms_of_attention_can_be_weighed(answer, form, mode):
    one = on_gpu(case("transformer", form, width=64, mode=mode, **WIDE))
    found = Worker(None, seed=0, weighs=True).answer("weigh", **asked(one))
    answer(f"{form} in {mode}", {key: found.get(key) for key in ("outcome", "reason", "notes")})
    assert found["outcome"] in ("ok", "unsupported"), found


def test_which_forms_make_the_host_wait(answer):
    """By torch's warnings, in a forward pass whose kernels have been loaded."""
    waiting = []
    for name in names():
        tested = card(name)
        for form in tested.forms:
            one = on_gpu(case(name, form, causal=ways(tested.causality)[-1], seq_len=256))
            if form in ("flex", "compiled") or tested.refusal(form, tested.config(), one.workload):
                continue
            iterate = subject_of(tested, one, seed=0).iteration()
            iterate(lambda phase: None)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                torch.cuda.set_sync_debug_mode("warn")
                iterate(lambda phase: None)
                torch.cuda.set_sync_debug_mode("default")
            waiting += [f"{name}:{form}"] * any("synchroniz" in str(w.message) for w in caught)
    answer("forms that wait for the device", waiting)
