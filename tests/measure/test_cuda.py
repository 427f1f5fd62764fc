"""The stopwatch of a GPU against a device that exists only as two clocks and a queue."""

from types import SimpleNamespace

import pytest
import torch

from attnbench.measure import cuda
from attnbench.measure.cuda import LEARNING, LONGEST_HOLD_S, PATIENCE, CudaStopwatch
from attnbench.measure.timing import sample

CYCLES_PER_S = 1_000_000


class Gpu:
    """The host's clock, and when the device will have done what is enqueued."""

    def __init__(self, monkeypatch):
        self.now = self.free = 0.0
        self.holds = []
        properties = SimpleNamespace(clock_rate=CYCLES_PER_S // 1000, L2_cache_size=1)
        replaced = {
            "current_device": lambda: 0,
            "get_device_properties": lambda index: properties,
            "synchronize": self.wait,
            "_sleep": self.hold,
            "Event": lambda enable_timing: Event(self),
        }
        for name, function in replaced.items():
            monkeypatch.setattr(torch.cuda, name, function)
        clock = SimpleNamespace(perf_counter=lambda: self.now, process_time=lambda: self.now)
        monkeypatch.setattr(cuda, "time", clock)

    def wait(self):
        self.now = max(self.now, self.free)

    def run(self, device_s, enqueue_s):
        """Enqueue a kernel."""
        self.now += enqueue_s
        self.free = max(self.free, self.now) + device_s

    def hold(self, cycles):
        self.holds.append(cycles / CYCLES_PER_S)
        self.free = max(self.free, self.now) + self.holds[-1]


class Event:
    def __init__(self, gpu):
        self.gpu = gpu

    def record(self):
        self.at = max(self.gpu.now, self.gpu.free)

    def elapsed_time(self, later):
        return 1000 * (later.at - self.at)


@pytest.fixture
def gpu(monkeypatch):
    return Gpu(monkeypatch)


def samples(gpu, kernels, iterations, count, synchronises=False):
    """Samples of iterations that enqueue these kernels: seconds on the device, and to enqueue."""

    def iterate(lap):
        for device_s, enqueue_s in kernels:
            gpu.run(device_s, enqueue_s)
            if synchronises:
                gpu.wait()
        lap("forward")

    watch = CudaStopwatch()
    return watch, [sample(iterate, lambda: None, watch, iterations) for _ in range(count)]


LAUNCH_BOUND = [(0.000_01, 0.000_03)] * 20


def test_a_hold_hides_launches_once_it_is_known_how_long_they_take(gpu):
    watch, taken = samples(gpu, LAUNCH_BOUND, 4, 10)
    assert taken[0].seconds > 0.0005, "launches are seen without a hold"
    for held in taken[LEARNING:]:
        assert held.seconds == pytest.approx(0.0002)
    assert len(gpu.holds) == 10 - LEARNING
    assert watch.visible_launches == ""


def test_a_hold_follows_the_number_of_iterations(gpu):
    watch, _ = samples(gpu, LAUNCH_BOUND, 1, LEARNING)
    for iterations in (1, 8):
        watch.reset(iterations)
    assert gpu.holds[1] == pytest.approx(8 * gpu.holds[0], rel=0.01)


def test_where_the_host_waits_for_the_device_holds_end_and_never_grow(gpu):
    """Each wait would include the hold, and the next hold the wait."""
    watch, taken = samples(gpu, [(0.0005, 0.0001)], 1, 50, synchronises=True)
    assert len(gpu.holds) == PATIENCE
    assert max(gpu.holds) < 0.002
    assert watch.visible_launches
    assert taken[-1].seconds == pytest.approx(0.0006, rel=0.2)
    assert gpu.now < 0.05


def test_enqueuing_longer_than_a_hold_may_last_is_reported(gpu):
    watch, _ = samples(gpu, [(0.001, 0.002)] * 100, 1, 10)
    assert max(gpu.holds) == pytest.approx(LONGEST_HOLD_S)
    assert watch.visible_launches
