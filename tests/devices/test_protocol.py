"""What a kind of device inherits: names, settings, and what it does not report."""

import sys
import sysconfig

import pytest

from attnbench.devices.protocol import Device, Meter
from attnbench.devices.timing import HostStopwatch
from attnbench.records import Clock


class Plain(Device):
    """A device that says only what it must."""

    def missing(self):
        return ""

    def stopwatch(self, cold=False, clock=Clock.WALL):
        return HostStopwatch(counts=clock)

    def profile_memory(self, build, case):
        return {}, {}


@pytest.mark.parametrize(("name", "index"), [("plain", 0), ("plain:0", 0), ("plain:12", 12)])
def test_a_device_is_called_as_users_call_it_and_has_its_number(name, index):
    device = Plain(name)
    assert (device.name, device.index, device.torch_name, device.title()) == (
        *(name, index),
        *(name, name),
    )
    assert device.facts() == {"device": name}


@pytest.mark.parametrize(
    ("quick", "bounded", "sample_s"), [(True, True, 0.5), (False, True, 0.5), (False, False, 3.0)]
)
def test_samples_are_short_where_a_budget_bounds_them(quick, bounded, sample_s):
    assert Plain("plain").sampling(quick, bounded)["sample_s"] == sample_s


def test_a_device_that_reports_nothing_disturbs_no_sample():
    device = Plain("plain")
    meter = device.meter()
    assert type(meter) is Meter
    with meter as entered:
        assert entered is meter
    assert (meter.values(), meter.notes(), meter.is_slow, meter.disturbed) == ({}, {}, False, None)
    assert (meter.faults(), meter.waited()) == (0, 0.0)
    assert (device.memory_bytes(), device.cannot_compile()) == (None, "")
    assert device.notes(device.stopwatch()) == {}


def test_what_a_device_does_not_offer_is_not_made_up():
    device = Plain("plain")
    offers = (device.captures, device.counts_energy, device.flushes_cache)
    assert not any(offers)
    for asked in (device.joules, lambda: device.captured(None)):
        with pytest.raises(NotImplementedError):
            asked()


def test_headers_of_python_are_looked_for_and_named_by_their_version(tmp_path, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_path", lambda kind: str(tmp_path))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
    assert version in Device.missing_headers_reason()
    (tmp_path / "Python.h").touch()
    assert Device.missing_headers_reason() == ""


@pytest.mark.parametrize("method", ["missing", "stopwatch", "profile_memory"])
def test_a_kind_of_device_says_whether_it_is_there_and_how_it_measures(method):
    lacking = type("Lacking", (Plain,), {method: getattr(Device, method)})
    with pytest.raises(TypeError, match=method):
        lacking("lacking")
