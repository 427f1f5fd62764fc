"""Limits of containers and services, read from folders made as the kernel makes them."""

import pytest

from attnbench.devices import cgroups


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Writes files of control groups, and what the process reads of its group."""
    monkeypatch.setattr(cgroups, "TOP", tmp_path / "cgroup")
    monkeypatch.setattr(cgroups, "MINE", tmp_path / "mine")

    def made(mine, files):
        if mine is not None:
            (tmp_path / "mine").write_text(mine)
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")

    return made


def test_the_least_limit_of_the_groups_above_holds(kernel):
    kernel(
        "0::/user/job\n",
        {
            "user/job/memory.max": "max",
            "user/job/memory.current": "10",
            "user/job/cpu.max": "max 100000",
            "user/memory.max": "1000",
            "user/memory.current": "900",
            "user/memory.stat": "anon 300\ninactive_file 600\nactive_file 0",
            "user/cpu.max": "350000 100000",
        },
    )
    assert cgroups.free_bytes() == 1000 - (900 - 600)
    assert cgroups.whole_cores() == 3


def test_a_container_sees_its_group_at_the_top(kernel):
    kernel(
        "0::/host/path/that/leads/nowhere\n",
        {"memory.max": "500", "memory.current": "100", "cpu.max": "50000 100000"},
    )
    assert cgroups.free_bytes() == 400
    assert cgroups.whole_cores() == 1


def test_groups_of_version_1_are_respected(kernel):
    kernel(
        "4:memory:/a\n3:cpu,cpuacct:/b\n0::/\n",
        {
            "memory/a/memory.limit_in_bytes": "800",
            "memory/a/memory.usage_in_bytes": "300",
            "memory/a/memory.stat": "inactive_file 1\ntotal_inactive_file 50",
            "memory/a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4",
            "memory/memory.limit_in_bytes": str(2**63 - 4096),
            "memory/memory.usage_in_bytes": "9000",
            "cpu,cpuacct/b/cpu.cfs_quota_us": "200000",
            "cpu,cpuacct/b/cpu.cfs_period_us": "100000",
            "cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
    )
    assert cgroups.free_bytes() == 800 - (300 - 50)
    assert cgroups.whole_cores() == 2
    assert cgroups.oom_kills() == 4


def test_kills_are_those_of_the_own_group(kernel):
    kernel("0::/a/b\n", {"a/b/memory.events": "oom 3\noom_kill 2", "a/memory.events": "oom_kill 9"})
    assert cgroups.oom_kills() == 2


@pytest.mark.parametrize("mine", [None, "", "0::/\n"])
def test_without_figures_there_is_no_limit(kernel, mine):
    kernel(mine, {})
    assert cgroups.free_bytes() is None
    assert cgroups.whole_cores() is None
    assert cgroups.oom_kills() == 0


def test_a_quota_counts_how_often_it_stops(kernel):
    kernel("1:cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "50000", "cpu/a/cpu.cfs_period_us": "100000"})
    assert cgroups.quota_cores() == 0.5
    assert cgroups.stops() == cgroups.Stops(0, 0)
    kernel(None, {"cpu/a/cpu.stat": "nr_periods 40\nnr_throttled 30\nthrottled_time 9"})
    before = cgroups.stops()
    assert (before, before.share) == (cgroups.Stops(40, 30), 0.75)
    kernel(None, {"cpu/a/cpu.stat": "nr_periods 50\nnr_throttled 31\nthrottled_time 9"})
    assert cgroups.stops() - before == cgroups.Stops(10, 1)


def test_without_a_quota_nothing_stops(kernel):
    kernel("0::/\n", {"cpu.max": "max 100000", "cpu.stat": "nr_periods 9\nnr_throttled 9"})
    assert (cgroups.quota_cores(), cgroups.stops()) == (None, cgroups.Stops())
