"""The stopwatch of a GPU against a device that exists only as two clocks and a queue."""

from collections import deque
from types import SimpleNamespace

import pytest
import torch

from attnbench.devices import cuda_timing
from attnbench.devices.cuda_timing import (
    BURST_S,
    CALIBRATION_SAMPLES_NEEDED,
    FALL,
    HOLD,
    L2_FACTOR,
    LONGEST_HOLD_S,
    PATIENCE,
    SPUN,
    CudaStopwatch,
)
from attnbench.devices.protocol import Meter
from attnbench.devices.timing import sample, warm_up
from tests.measuring.cases import lapped, timing

CYCLES_PER_S = 1_980_000_000
L2 = 64  # bytes
START_S = 0.000_004  # from an event to the kernel behind it


class Gpu:
    """The host's clock, and when the device will have done what is enqueued.

    Its queue has room for so many `launches`; the host waits until one has ended.
    """

    def __init__(self, monkeypatch, launches=10**9):
        self.now = self.free = 0.0
        self.holds = []
        self.launches, self.ends = launches, deque()  # when what is in the queue will have ended
        self.cycles_per_s = CYCLES_PER_S
        properties = SimpleNamespace(clock_rate=CYCLES_PER_S // 1000, L2_cache_size=L2)
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
        monkeypatch.setattr(cuda_timing, "time", clock)

    def wait(self):
        self.now = max(self.now, self.free)

    def run(self, device_s, enqueue_s):
        """Enqueue a kernel."""
        self.now += enqueue_s
        while self.ends and self.ends[0] <= self.now:
            self.ends.popleft()
        if len(self.ends) >= self.launches:
            self.now = self.ends.popleft()
        self.free = max(self.free, self.now) + device_s
        self.ends.append(self.free)

    def hold(self, cycles):
        if cycles in SPUN:
            self.run(START_S + cycles / self.cycles_per_s, 0.0)
            return
        self.holds.append(cycles / CYCLES_PER_S)
        self.run(self.holds[-1], 0.0)


class Event:
    def __init__(self, gpu):
        self.gpu = gpu

    def record(self):
        self.at = max(self.gpu.now, self.gpu.free)

    def elapsed_time(self, later):
        return 1000 * (later.at - self.at)

    def synchronize(self):
        self.gpu.now = max(self.gpu.now, self.at)


@pytest.fixture
def gpu(monkeypatch):
    return Gpu(monkeypatch)


def iteration(gpu, kernels, waits=False, slower=1):
    """An iteration that enqueues these kernels: seconds on the device, and to enqueue."""

    def iterate(lap):
        for device_s, enqueue_s in kernels:
            gpu.run(device_s, slower * enqueue_s)
            if waits:
                gpu.wait()
        lap("forward")

    return iterate


def nothing():
    """Stands for clearing gradients."""


def samples(gpu, kernels, iterations, count, **how):
    """The stopwatch, and samples of such iterations."""
    watch, iterate = CudaStopwatch(), iteration(gpu, kernels, **how)
    return watch, [sample(iterate, nothing, watch, iterations) for _ in range(count)]


LAUNCH_BOUND = [(0.000_01, 0.000_03)] * 20  # 0.2 ms on the device, 0.6 ms to enqueue


def test_a_hold_hides_launches_once_it_is_known_how_long_they_take(gpu):
    watch, taken = samples(gpu, LAUNCH_BOUND, 3, 10)
    assert taken[0].seconds > 0.0005, "launches are seen without a hold"
    for held in taken[CALIBRATION_SAMPLES_NEEDED:]:
        assert held.seconds == pytest.approx(0.0002)
        assert held.enqueue_s == pytest.approx(3 * 0.0006)
    assert len(gpu.holds) == 10 - CALIBRATION_SAMPLES_NEEDED
    assert watch.visible_launches == ""
    assert watch.hides_launches
    assert not watch.calibrating


def test_a_long_sample_is_enqueued_in_bursts_that_a_hold_can_hide(gpu):
    """As one it would take 0.6 s to enqueue, and a hold may last 0.1 s."""
    watch, taken = samples(gpu, LAUNCH_BOUND, 1000, CALIBRATION_SAMPLES_NEEDED + 2)
    for held in taken[CALIBRATION_SAMPLES_NEEDED:]:
        assert held.iterations == 1000
        assert held.seconds == pytest.approx(0.0002)
        assert held.enqueue_s == pytest.approx(0.6)
    burst = int(BURST_S / 0.0006)
    assert len(gpu.holds) == 2 * -(-1000 // burst)
    assert max(gpu.holds) <= 1.5 * BURST_S
    assert watch.visible_launches == ""


def test_launches_that_take_no_time_to_speak_of_are_not_hidden(gpu):
    watch, taken = samples(gpu, [(0.1, 0.000_1)], 1, 10)
    assert not gpu.holds
    assert not watch.hides_launches
    assert not watch.calibrating, "one sample is enough"
    assert taken[0].wall_s == pytest.approx(0.1, rel=0.01)


def test_where_the_host_waits_for_the_device_holds_end_and_never_grow(gpu):
    """Each wait would include the hold, and the next hold the wait."""
    watch, taken = samples(gpu, [(0.0005, 0.0001)], 1, 50, waits=True)
    assert len(gpu.holds) == PATIENCE
    assert max(gpu.holds) < 0.004
    assert watch.visible_launches
    assert not watch.hides_launches
    assert taken[-1].seconds == pytest.approx(0.0006, rel=0.2)
    assert taken[-1].wall_s == pytest.approx(0.0006, rel=0.2)
    assert gpu.now < 0.05
    gpu.holds.clear()
    # each lap has a sample without a hold, which says nothing about holds
    watch, _ = samples(gpu, [(0.0005, 0.0001)], 1, CALIBRATION_SAMPLES_NEEDED, waits=True)
    for hide in 10 * (False, True):
        sample(iteration(gpu, [(0.0005, 0.0001)], waits=True), nothing, watch, 1, hide)
    assert len(gpu.holds) == PATIENCE


def test_a_hold_that_was_too_short_is_followed_by_longer_ones(gpu):
    """The shortest time to enqueue, which holds follow, may be much below the usual one."""
    watch, _ = samples(gpu, LAUNCH_BOUND, 1, CALIBRATION_SAMPLES_NEEDED)
    slower = iteration(gpu, LAUNCH_BOUND, slower=3)
    taken = [sample(slower, nothing, watch, 1) for _ in range(2)]
    assert watch.hides_launches
    assert taken[-1].seconds == pytest.approx(0.0002)
    assert watch.hold > HOLD
    for _ in range(FALL):  # a few hiccups of the host shall not make every later sample wait
        sample(iteration(gpu, LAUNCH_BOUND), nothing, watch, 1)
    assert watch.hold == HOLD


def test_holds_go_on_where_only_single_ones_were_too_short(gpu):
    watch, _ = samples(gpu, LAUNCH_BOUND, 1, CALIBRATION_SAMPLES_NEEDED)
    for late in range(PATIENCE + 1):
        for slower in (2 * 2**late, 1):
            sample(iteration(gpu, LAUNCH_BOUND, slower=slower), nothing, watch, 1)
    assert watch.hides_launches


SHORT_LAUNCHES = [(0.000_003, 0.000_001)] * 20  # a GPU-bound case of many short kernels


def test_a_full_queue_makes_bursts_smaller_and_holds_no_longer(gpu):
    """The host waits in it as if it enqueued slowly, but its launches need not show."""
    gpu.launches = 100
    watch, _ = samples(gpu, SHORT_LAUNCHES, 1, CALIBRATION_SAMPLES_NEEDED)
    iterate = iteration(gpu, SHORT_LAUNCHES)
    assert watch.burst * len(SHORT_LAUNCHES) > 1000
    for _ in range(10):
        taken = sample(iterate, nothing, watch, 100)
    assert watch.burst * len(SHORT_LAUNCHES) < 100
    assert watch.hold == HOLD
    assert not watch.visible_launches
    assert taken.seconds == pytest.approx(0.000_06)


def test_bursts_fit_a_queue_of_a_thousand_launches(gpu):
    """Of the fastest launches, those of CUDA graphs and of compiled code."""
    gpu.launches = 1000
    kernels = [(0.000_001, 0.000_002)] * 10
    watch, _ = samples(gpu, kernels, 1, CALIBRATION_SAMPLES_NEEDED)
    for _ in range(3):
        taken = sample(iteration(gpu, kernels), nothing, watch, 1000)
    assert watch.most_iterations > 1000, "no burst was late"
    assert taken.seconds == pytest.approx(0.000_01)


@pytest.mark.parametrize(
    ("launches", "kernels"),
    [(1000, [(0.000_001, 0.000_002)] * 3000), (10**9, [(0.001, 0.002)] * 100)],
)
def test_more_launches_than_the_queue_takes_or_a_hold_can_hide_are_reported(gpu, launches, kernels):
    """And the sample that gives holds up holds no more: each would last twice as long."""
    gpu.launches = launches
    watch, _ = samples(gpu, kernels, 20, CALIBRATION_SAMPLES_NEEDED + 1)
    assert "more kernels than the queue takes" in watch.visible_launches
    assert max(gpu.holds) <= LONGEST_HOLD_S
    assert PATIENCE <= len(gpu.holds) < 20


@pytest.mark.parametrize("kernels", [LAUNCH_BOUND, [(0.1, 0.000_1)]], ids=["held", "not held"])
def test_the_clock_is_that_behind_the_work_whatever_a_kernel_takes_to_start(gpu, kernels):
    watch, _ = samples(gpu, kernels, 1, CALIBRATION_SAMPLES_NEEDED)
    gpu.cycles_per_s = 1_300_000_000
    taken = sample(iteration(gpu, kernels), nothing, watch, 2)
    assert taken.clock_hz == pytest.approx(1.3e9)
    shown = sample(iteration(gpu, kernels), nothing, watch, 2, hide=False)
    assert shown.clock_hz is None, "its wall time counts"


def test_a_lap_has_the_wall_time_of_iterations_that_nothing_holds(gpu):
    """Including the holds, it would be nearly twice as long."""
    watch, _ = samples(gpu, LAUNCH_BOUND, 1, CALIBRATION_SAMPLES_NEEDED)
    answers = timing(iteration(gpu, LAUNCH_BOUND), watch, Meter(), 0.0002)
    taken = lapped(answers, iterations=20, rehearse=True)
    assert taken.seconds == pytest.approx(0.0002)
    assert taken.unheld_s == taken.unheld_wall_s == pytest.approx(0.0006, rel=0.03)
    assert taken.wall_s / 20 > 1.5 * taken.unheld_s
    assert taken.enqueue_s / 20 == pytest.approx(0.0006)


def test_a_cold_cache_is_flushed_before_each_iteration_and_that_takes_none_of_its_time(gpu):
    watch, flushed = CudaStopwatch(cold=True, device="cpu"), []
    assert watch.flush.nbytes == L2_FACTOR * L2
    watch.flush = SimpleNamespace(zero_=lambda: flushed.append(gpu.run(0.001, 0.000_01)))
    for _ in range(CALIBRATION_SAMPLES_NEEDED + 1):
        taken = sample(iteration(gpu, LAUNCH_BOUND), nothing, watch, 3)
    assert len(flushed) == 3 * (CALIBRATION_SAMPLES_NEEDED + 1)
    assert taken.seconds == pytest.approx(0.0002)


def test_a_warm_up_does_not_end_before_holds_are_known(gpu):
    """The first iteration loads kernels, and may spend all of the time for warming up."""
    watch, iterate = CudaStopwatch(), iteration(gpu, [(0.0002, 0.0006)])
    first = sample(iterate, nothing, watch, 1)
    assert len(warm_up(iterate, nothing, watch, first, 0.0)) == CALIBRATION_SAMPLES_NEEDED
    assert watch.hides_launches
