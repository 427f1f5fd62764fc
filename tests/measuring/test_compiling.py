"""What a worker says of compiled code: the time to compile it, what it compiled again, its memory.

Torch's operators stand in for generated code.
"""

from functools import cache, partial
from itertools import product

import pytest
import torch
from torch._dynamo.utils import counters

from attnbench.measuring.worker import Worker
from attnbench.mechanisms.catalogue import compiled
from attnbench.records import PASSES, Level, Mode
from tests.measuring.cases import answered, case, sent

# torch warns of its own code while it compiles
WARNINGS = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
pytestmark = [WARNINGS, pytest.mark.usefixtures("afresh")]

USUAL = ((Level.CORE, Mode.INFERENCE), (Level.MODEL, Mode.TRAINING))


@pytest.fixture
def captured(monkeypatch):
    capture = partial(torch.compile, backend="aot_eager", dynamic=False, fullgraph=True)
    monkeypatch.setattr(compiled, "kernel", cache(capture))


def asked(form, **sizes):
    return sent(case(form=form, **sizes))


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize(
    ("level", "mode"),
    [
        pytest.param(level, mode, marks=() if (level, mode) in USUAL else pytest.mark.long)
        for level, mode in product(Level, PASSES)
    ],
)
def test_compiling_comes_before_the_warm_up_and_never_again(level, mode):
    worker = Worker(None, seed=0)
    answered(worker, "build", suspicious=True, **asked("compiled", level=level, mode=mode))
    before = counters["stats"]["unique_graphs"]
    answered(worker, "lap", iterations=2)
    found = answered(worker, "finish")
    now = counters["stats"]["unique_graphs"]
    assert now == before, "neither laps nor the search for odd behaviour compile"
    assert found["values"]["compile_s"] > found["values"]["warmup_s"] > 0
    assert not {"odd", "suspect"} & found["notes"].keys()


def test_a_form_that_does_not_compile_has_no_time_to_compile():
    worker = Worker(None, seed=0)
    answered(worker, "build", **asked("eager"))
    found = answered(worker, "finish")["values"]
    assert "compile_s" not in found


@pytest.mark.faults
@pytest.mark.usefixtures("captured")
def test_more_shapes_than_torch_keeps_are_compiled_in_one_process():
    worker = Worker(None, seed=0)
    for seq_len in range(8, 20):
        answered(worker, "build", **asked("compiled", seq_len=seq_len))
        before = counters["stats"]["unique_graphs"]
        answered(worker, "lap", iterations=1)
        answered(worker, "finish")
        assert counters["stats"]["unique_graphs"] == before > 0


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("mode", PASSES)
def test_memory_is_that_of_compiled_code_and_operators_are_not_counted(mode):
    sizes = {"level": Level.CORE, "batch": 1, "seq_len": 256, "width": 64, "mode": mode}
    answers = {
        form: answered(Worker(None, seed=0), "measure_memory", **asked(form, **sizes))
        for form in ("eager", "compiled")
    }
    eager, fused = (answers[form]["values"] for form in ("eager", "compiled"))
    assert eager["operators"] > 0
    assert not {"operators", "moved_bytes"} & fused.keys()
    assert "fuses operators" in answers["compiled"]["notes"]["operators"]
    scores = 4 * 256**2 * 4
    assert scores <= fused["allocated_delta_bytes"] <= 2 * eager["allocated_delta_bytes"]
    assert fused["kept_bytes"] == 0
    assert fused["error"] < 1e-5
