"""The stopwatch against kernels of known length."""

from statistics import median

import pytest
import torch

from attnbench.devices import nvml
from attnbench.devices.cuda_timing import CALIBRATION_SAMPLES_NEEDED, PATIENCE
from attnbench.devices.finding import find
from attnbench.devices.timing import sample

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("alone")]

SHORT, LONG = 2_000_000, 20_000_000  # cycles: about 1 and 10 ms
TINY, MANY = 20_000, 50  # a kernel shorter than its launch, many times
TAKEN = 20  # samples


def spinning(cycles, count=1):
    """An iteration of so many kernels, each of so many cycles of the multiprocessors' clock."""

    def iterate(lap):
        for _ in range(count):
            torch.cuda._sleep(cycles)
        lap("forward")

    return iterate


def seconds(iterate, iterations=2, watch=None):
    """The median of some samples, after those from which the stopwatch learns."""
    watch = watch or find("cuda").stopwatch()
    taken = [
        sample(iterate, lambda: None, watch, iterations)
        for _ in range(CALIBRATION_SAMPLES_NEEDED + TAKEN)
    ]
    return median(one.seconds for one in taken[CALIBRATION_SAMPLES_NEEDED:])


@pytest.fixture(autouse=True)
def awake():
    """A device that is idle has a lower clock."""
    for _ in range(50):
        torch.cuda._sleep(LONG)
    torch.cuda.synchronize()


def test_ten_times_the_cycles_take_ten_times_as_long():
    assert seconds(spinning(LONG)) / seconds(spinning(SHORT)) == pytest.approx(10, rel=0.03)


def test_a_kernel_of_known_length_takes_as_long_as_the_clock_says(answer):
    device, took_s = find("cuda"), seconds(spinning(LONG))
    try:
        question = lambda library, gpu: library.nvmlDeviceGetClockInfo(gpu, library.NVML_CLOCK_SM)  # noqa: E731
        spinning(10 * LONG)(lambda phase: None)  # the clock is read under load
        clock = 1e6 * nvml.ask(question, device.uuid())
    except nvml.Unavailable as error:
        pytest.skip(f"NVML gives no clock: {error}")
    answer("clock by the stopwatch and by NVML, Hz", (LONG / took_s, clock))
    assert LONG / took_s == pytest.approx(clock, rel=0.05)


def test_the_parts_of_an_iteration_add_up():
    def iterate(lap):
        for phase, cycles in (("forward", SHORT), ("backward", 2 * SHORT), ("step", SHORT // 2)):
            torch.cuda._sleep(cycles)
            lap(phase)

    watch = find("cuda").stopwatch()
    taken = [
        sample(iterate, lambda: None, watch, 4) for _ in range(CALIBRATION_SAMPLES_NEEDED + 1)
    ][-1]
    assert taken.device_s == pytest.approx(taken.forward_s + taken.backward_s + taken.step_s)
    assert taken.backward_s / taken.forward_s == pytest.approx(2, rel=0.05)
    assert taken.step_s / taken.forward_s == pytest.approx(0.5, rel=0.05)


def test_a_hold_hides_launches(answer):
    """Without one, the first samples see the gaps between kernels."""
    watch = find("cuda").stopwatch()
    iterate = spinning(TINY, MANY)
    unheld = [
        sample(iterate, lambda: None, watch, 4).seconds for _ in range(CALIBRATION_SAMPLES_NEEDED)
    ]
    held = seconds(iterate, 4, watch)
    alone = seconds(spinning(LONG)) * TINY / LONG
    answer("many short kernels without a hold, with one, and in theory, s",
           (min(unheld), held, MANY * alone))  # fmt: skip
    assert held <= 1.02 * min(unheld)
    assert held >= 0.95 * MANY * alone


def test_what_events_around_each_iteration_add(answer):
    """Steps of decoding take some 50 us, and two events 1 or 2."""
    watch, iterate = find("cuda").stopwatch(), spinning(TINY)
    each = seconds(iterate, MANY, watch)
    all_of_them = seconds(spinning(TINY, MANY), 1) / MANY
    answer("a kernel between two events of its own, and among others between two, s",
           (each, all_of_them))  # fmt: skip
    assert each == pytest.approx(all_of_them, abs=5e-6)


def test_the_clock_of_a_sample_is_that_of_its_kernels(answer):
    watch = find("cuda").stopwatch()
    taken = [
        sample(spinning(LONG), lambda: None, watch, 2)
        for _ in range(CALIBRATION_SAMPLES_NEEDED + TAKEN)
    ]
    clock = median(one.clock_hz for one in taken)
    answer("clock behind samples and from their kernels, Hz",
           (clock, LONG / median(one.seconds for one in taken)))  # fmt: skip
    assert clock == pytest.approx(LONG / median(one.seconds for one in taken), rel=0.03)


def test_an_iteration_that_waits_for_the_device_is_marked():
    def iterate(lap):
        torch.cuda._sleep(SHORT)
        torch.cuda.synchronize()
        lap("forward")

    watch = find("cuda").stopwatch()
    for _ in range(CALIBRATION_SAMPLES_NEEDED + PATIENCE + 1):
        sample(iterate, lambda: None, watch, 1)
    assert find("cuda").notes(watch)["launches"]
