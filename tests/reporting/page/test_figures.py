"""Joules of a counter and joules of a model are never drawn on one axis."""

import pytest

from shunter.reporting.page.figures import trained_chart
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
    [
        (("measured", "estimated"), "measured", [100.0, None]),
        (("estimated", "estimated"), "estimated", [100.0, 100.0]),
    ],
)
def test_an_axis_of_energy_has_one_source(sources: tuple[str, ...], label: str, joules: list[float | None]) -> None:
    members = [member(f"member-{number}", source) for number, source in enumerate(sources)]
    chart = trained_chart(RunTree(parent=members[0], children=tuple(members), curves={}, artifacts={}))
    assert chart is not None
    axis = next(axis for axis in chart.x if axis.key == "energy.joules")
    assert f"(J, {label})" in axis.label
    assert [mark.values["energy.joules"] for mark in chart.points] == joules
