"""Joules of a counter and joules of a model are never drawn on one axis."""

import pytest

from shunter.reporting.page.figures import interval_bars, trained_chart
from shunter.tracking.history import TrackedRun
from shunter.tracking.tree import RunTree


def member(name: str, source: str) -> TrackedRun:
    return TrackedRun(
        run_id=name,
        kind="member",
        parent_run_id="parent",
        status="FINISHED",
        started_at=0.0,
        ended_at=1.0,
        params={},
        metrics={"quality.ne": 0.8, "time.train_seconds": 2.0, "energy.joules": 100.0},
        tags={"energy.source": source, "mlflow.runName": name},
    )


@pytest.mark.parametrize(
    ("sources", "label", "joules"),
    [(("measured", "estimated"), "measured", [100.0, None]), (("estimated", "estimated"), "estimated", [100.0, 100.0])],
)
def test_an_axis_of_energy_has_one_source(sources: tuple[str, ...], label: str, joules: list[float | None]) -> None:
    members = [member(f"member-{number}", source) for number, source in enumerate(sources)]
    chart = trained_chart(RunTree(parent=members[0], children=tuple(members), curves={}, artifacts={}))
    assert chart is not None
    axis = next(axis for axis in chart.x if axis.key == "energy.joules")
    assert f"(J, {label})" in axis.label
    assert [mark.values["energy.joules"] for mark in chart.points] == joules


def test_an_interval_is_a_bar_by_placement() -> None:
    rows = [
        {"rank": 1, "placement": "cpu", "hours": 1.0, "hours_low": 0.5, "hours_high": 2.0, "kwh": None},
        {"rank": 2, "placement": "gpu", "hours": 2.0, "hours_low": 1.0, "hours_high": 4.0, "kwh": 1.0},
        {"rank": 3, "placement": "tpu", "hours": 3.0, "hours_low": None, "hours_high": None, "kwh": 1.0},
    ]
    [time] = interval_bars(rows)
    assert [(bar["name"], bar["chosen"]) for bar in time["bars"]] == [("cpu", True), ("gpu", False)]
    places = [(bar["low"], bar["spread"], bar["at"]) for bar in time["bars"]]  # thirds: from 0.5 to 4 on a log axis
    assert places[0] == pytest.approx((0, 200 / 3, 100 / 3))
    assert places[1] == pytest.approx((100 / 3, 200 / 3, 200 / 3))
