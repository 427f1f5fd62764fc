"""What disturbs a lap on a CPU is read from the system, and laps are taken again for it alone."""

import math

import pytest

from attnbench.devices.disturbances import CoreMeter, account, share
from attnbench.devices.system import Linux
from attnbench.records import Disturbance
from tests.doubles.core import MANY, Core


def test_waiting_is_read_in_seconds_where_the_system_says_it(tmp_path):
    for task, text in (("7", "5000000 250000000 9\n"), ("8", "1 1500000000 2\n"), ("9", None)):
        folder = tmp_path / "self" / "task" / task
        folder.mkdir(parents=True)
        if text is not None:  # or the thread has just ended
            (folder / "schedstat").write_text(text)
    assert Linux().waited_s(tmp_path) == pytest.approx(1.75)
    assert math.isnan(Linux().waited_s(tmp_path / "self"))
    assert min(account()[:2]) > 0
    meter = CoreMeter(account=lambda: (1.0, 1, math.nan))
    with meter:
        pass
    assert meter.waited_s is None
    assert math.isnan(meter.waited())


@pytest.mark.parametrize(
    ("cpu_s", "waited_s", "found"), [(1.0, 0.0, 1.0), (1.0, 3.0, 0.25), (1.0, math.nan, None)]
)
def test_the_share_of_a_core_is_what_was_computed_of_what_was_wanted(cpu_s, waited_s, found):
    assert share(cpu_s, waited_s) == found
    assert share(0.0, waited_s) is None


@pytest.mark.parametrize(
    ("faults", "waited_s", "slow"),
    [(0, 0.0, False), (MANY, 0.0, True), (MANY // 2, 0.0, False), (0, 9.0, False)],
)
def test_a_lap_is_disturbed_by_page_faults(faults, waited_s, slow):
    core = Core()
    with core.meter:
        core.now = 0.1, faults, waited_s
    assert core.meter.disturbed is (Disturbance.FAULTS if slow else None)
    assert (core.meter.is_slow, core.meter.waited_s) == (slow, waited_s)
