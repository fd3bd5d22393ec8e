"""Hosts that serve: the sums by hand, and what more misses and more drives change."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.extensions.tiers.memory.demand import Segment, TableDemand
from shunter.extensions.tiers.memory.power import BASE, Fleet, Host, read_hosts, saving, serving_fleet, serving_fleets

HOST = {
    "samples_per_second": 100,
    "dram_bytes": 1e9,
    "slow_bytes": 0,
    "reads_per_second": 0,
    "base_watts": 50,
    "dram_watts_per_gigabyte": 2,
    "device_watts": 0,
    "dynamic_watts": 30,
}


def table(rows: float, lookups: float = 4.0) -> TableDemand:
    half = rows / 2
    return TableDemand("item", rows, 64, lookups, (Segment(half, 0.9 / half), Segment(half, 0.1 / half)))


def test_power_is_that_of_rest_memory_drives_and_use() -> None:
    """700 samples a second on hosts of 100, of which seven tenths are planned for: ten, each used to seven tenths."""
    fleet = serving_fleet(Host(**HOST), [table(1_000)], 700)
    assert (fleet.hosts, fleet.limited_by, fleet.miss_rate) == (10, "compute", 0)
    assert fleet.watts == pytest.approx(10 * (50 + 2 * 1 + 0.7 * 30))
    larger = serving_fleet(Host(**HOST), [table(5e9 / 256)], 7)
    assert (larger.hosts, larger.limited_by) == (7, "memory")  # of each gigabyte four fifths hold tables


def test_rows_that_the_cache_lacks_are_read_from_drives() -> None:
    slow = Host(**{**HOST, "slow_bytes": 1e12, "reads_per_second": 100, "device_watts": 10})
    fleet = serving_fleet(slow, [table(1e11 / 256)], 700)
    assert 0.9 < fleet.miss_rate <= 1
    assert fleet.limited_by == "drives"
    assert fleet.hosts == int(np.ceil(700 * 4 * fleet.miss_rate / 70))


@given(st.floats(1e3, 1e10), st.floats(1, 1e8), st.floats(0.1, 10))
def test_more_misses_never_need_fewer_hosts(rows: float, rate: float, factor: float) -> None:
    for name, host in read_hosts().items():
        one = serving_fleet(host, [table(rows)], rate, miss_factor=factor)
        more = serving_fleet(host, [table(rows)], rate, miss_factor=2 * factor)
        assert more.hosts >= one.hosts, name


def test_what_is_saved_is_beside_hosts_with_memory_alone() -> None:
    fleets = serving_fleets([table(1e9)], 1e7)
    assert saving(fleets, BASE) == 0
    assert saving({BASE: Fleet(2, 200, "memory", 0), "x": Fleet(1, 250, "memory", 0)}, "x") == pytest.approx(-0.25)
