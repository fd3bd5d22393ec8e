"""Steps on ever more hosts: what bounds them, and bytes that can be counted by hand; the catalogue's figures."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.engine.profiling.workload import workload_of
from shunter.extensions.distributed.plan_request import DevicesRequest
from shunter.extensions.distributed.plan_scale import draw_scale
from shunter.extensions.distributed.planning.machine import Channel
from shunter.extensions.distributed.planning.scale import Links, ScaleReport, scale
from shunter.extensions.distributed.planning.tower_step import tower_spec, with_one_tower
from shunter.extensions.towers.dmt import DmtSpec
from shunter.models.counting import count_model
from shunter.models.registry import model_spec
from shunter.models.spec import CategoricalFeature, Features
from tests.extensions.distributed.planning.test_search import ACCELERATOR, demand_of

BATCH = 2048


def curves(*, compression: float = 4.0, gbit: float = 1600.0, hosts: tuple[int, ...] = (1, 2, 8)) -> ScaleReport:
    place = DevicesRequest(accelerator=ACCELERATOR, devices=8, devices_per_host=8, network_gbit=gbit)
    return scale(demand_of(3, 5), place, (), hosts, batch_per_device=BATCH, compression=compression, most_searched=1)


def test_what_crosses_hosts_is_counted_and_one_host_sends_nothing() -> None:
    report = curves()
    alone, two, eight = report.points
    vectors = BATCH * 5 * 32 * 4
    assert alone.crossing_bytes == {"flat": 0.0, "compressed": 0.0}
    assert two.crossing_bytes["flat"] == pytest.approx(2 * vectors / 2)
    assert eight.crossing_bytes["flat"] == pytest.approx(2 * vectors * 7 / 8)
    assert eight.crossing_bytes["compressed"] == pytest.approx(2 * vectors * 7 / 8 / 4)
    assert "searched" in alone.step_seconds
    assert "searched" not in two.step_seconds
    assert report.efficiency(alone, "flat") == 1.0
    assert all(report.efficiency(eight, way) <= 1.0 for way in ("flat", "compressed", "hybrid"))


@settings(max_examples=15, deadline=None)
@given(st.floats(1, 64), st.floats(10, 5000), st.sampled_from([2, 8, 64]))
def test_towers_gain_no_more_than_the_share_of_the_exchange(compression: float, gbit: float, hosts: int) -> None:
    (point,) = curves(compression=compression, gbit=gbit, hosts=(hosts,)).points
    assert point.speedup("compressed") <= 1 / (1 - point.exchange_share) + 1e-9
    assert point.step_seconds["compressed"] <= point.step_seconds["by host"] + 1e-12
    (slower,) = curves(compression=compression, gbit=gbit / 2, hosts=(hosts,)).points
    assert all(slower.step_seconds[way] >= point.step_seconds[way] for way in point.step_seconds)


def links(hosts: int) -> Links:
    return Links(
        within=Channel(latency_seconds=0.0, bytes_per_second=3e11),
        across_bytes_per_second=25e9,
        hosts=hosts,
        per_host=8,
    )


@settings(max_examples=25, deadline=None)
@given(st.floats(1e-3, 1), st.floats(1e6, 1e10), st.integers(1, 64), st.sampled_from([1, 2, 32]))
def test_divided_weights_take_at_least_the_longer_of_computing_and_gathering(
    dense: float, weights: float, pieces: int, hosts: int
) -> None:
    own = links(hosts)
    wide, narrow = own.fully_sharded(dense, weights, pieces), own.hybrid_sharded(dense, weights, pieces)
    gathered = own.gather_all(weights / pieces) * pieces
    assert wide >= max(dense, 3 * gathered) * (1 - 1e-9)
    assert narrow >= max(dense, own.all_reduce_parts(weights / pieces) * pieces) * (1 - 1e-9)
    if hosts == 1:
        assert wide == pytest.approx(narrow)
    assert own.fully_sharded(2 * dense, weights, pieces) >= wide


def test_hybrid_sharding_gains_where_gathering_is_not_hidden() -> None:
    own, weights = links(32), 4.6e9
    hidden, shown = (own.fully_sharded(one, weights, 6) / own.hybrid_sharded(one, weights, 6) for one in (2.0, 0.02))
    assert hidden < 1.05
    assert shown > 1.2


def test_towers_are_dispatched_as_one_and_give_what_is_left_of_their_fields() -> None:
    features = Features(
        dense=("d",), categorical=tuple(CategoricalFeature(name=f"c{one}", rows=10) for one in range(8))
    )
    flat = model_spec("dlrm", embedding_dim=32)
    spec = tower_spec(flat, 8, 2, 4.0)
    assert isinstance(spec, DmtSpec)
    assert 2 * spec.tower_vectors * spec.vector_width == 8 * 32 / 4
    alone, few, many = (
        workload_of(count_model(tower_spec(flat, 8, count, 4.0), features), train_samples=100) for count in (1, 2, 8)
    )
    few, many = with_one_tower(few, alone), with_one_tower(many, alone)
    assert many.operators_per_step == few.operators_per_step
    assert many.dense["fp32"].operators_per_step == few.dense["fp32"].operators_per_step


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    assert draw_scale(curves(), tmp_path / "deep" / "scale.png").stat().st_size > 10_000
