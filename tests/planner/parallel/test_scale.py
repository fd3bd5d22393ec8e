"""Steps on ever more hosts: what bounds them, and bytes that can be counted by hand; the catalogue's figures."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.parallel.scale import ScaleReport, scale
from reporting.scale_figure import draw_scale
from shunter.requests.plan import DevicesRequest
from tests.planner.parallel.test_search import ACCELERATOR, demand_of

BATCH = 2048


def curves(*, compression: float = 4.0, gbit: float = 1600.0, hosts: tuple[int, ...] = (1, 2, 8)) -> ScaleReport:
    place = DevicesRequest(accelerator=ACCELERATOR, devices=8, devices_per_host=8, network_gbit=gbit)
    return scale(demand_of(3, 5), place, (), hosts, batch_per_device=BATCH, compression=compression, most_searched=1)


def test_what_crosses_hosts_is_counted_and_one_host_sends_nothing() -> None:
    report = curves()
    alone, two, eight = report.points
    vectors = BATCH * 5 * 32 * 4
    assert alone.crossing_bytes == {"flat": 0.0, "towers": 0.0}
    assert two.crossing_bytes["flat"] == pytest.approx(2 * vectors / 2)
    assert eight.crossing_bytes["flat"] == pytest.approx(2 * vectors * 7 / 8)
    assert eight.crossing_bytes["towers"] == pytest.approx(2 * vectors * 7 / 8 / 4)
    assert "searched" in alone.step_seconds
    assert "searched" not in two.step_seconds
    assert report.efficiency(alone, "flat") == 1.0
    assert all(report.efficiency(eight, way) <= 1.0 for way in ("flat", "towers", "hybrid"))


@settings(max_examples=25, deadline=None)
@given(st.floats(1, 64), st.floats(10, 5000), st.sampled_from([2, 8, 64]))
def test_towers_gain_no_more_than_the_share_of_the_exchange(compression: float, gbit: float, hosts: int) -> None:
    (point,) = curves(compression=compression, gbit=gbit, hosts=(hosts,)).points
    assert point.speedup("towers") <= 1 / (1 - point.exchange_share) + 1e-9
    assert point.step_seconds["towers"] <= point.step_seconds["by host"] + 1e-12
    (slower,) = curves(compression=compression, gbit=gbit / 2, hosts=(hosts,)).points
    assert all(slower.step_seconds[way] >= point.step_seconds[way] for way in point.step_seconds)


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    assert draw_scale(curves(), tmp_path / "deep" / "scale.png").stat().st_size > 10_000
