"""Counters of the processor's energy, in a folder like that of Linux."""

import pytest

from attnbench.devices.protocol import Unavailable
from attnbench.devices.rapl import Packages

RANGE = 262_143_328_850


def zone(folder, number, name, microjoules):
    (folder / number).mkdir(exist_ok=True)
    for file, text in (
        ("name", name),
        ("energy_uj", microjoules),
        ("max_energy_range_uj", RANGE),
    ):
        (folder / number / file).write_text(f"{text}\n")


def test_packages_are_added_and_their_parts_are_not(tmp_path):
    zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    zone(tmp_path, "intel-rapl:0:0", "core", 4_000_000)
    zone(tmp_path, "intel-rapl:1", "package-1", 7_000_000)
    packages = Packages(tmp_path)
    assert packages.joules() == 0.0
    zone(tmp_path, "intel-rapl:0", "package-0", 8_000_000)
    zone(tmp_path, "intel-rapl:1", "package-1", 8_000_000)
    assert packages.joules() == pytest.approx(4.0)


def test_a_counter_begins_again_beyond_its_range(tmp_path):
    zone(tmp_path, "intel-rapl:0", "package-0", RANGE - 1_000_000)
    packages = Packages(tmp_path)
    packages.joules()
    zone(tmp_path, "intel-rapl:0", "package-0", 2_000_000)
    assert packages.joules() == pytest.approx(3.0)


def test_why_there_is_no_number_is_said(tmp_path):
    with pytest.raises(Unavailable, match=r"no counters of the processor's energy \(RAPL\)"):
        Packages(tmp_path / "none").joules()
    zone(tmp_path, "intel-rapl:0", "package-0", 1)
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    with pytest.raises(Unavailable, match="energy_uj cannot be read: No such file"):
        Packages(tmp_path).joules()
