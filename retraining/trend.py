"""Page of the nightly runs of a model: quality of champions and challengers by day, outcomes and findings.

The quality of a click model is NE and AUC, and of a model of a numeric label RMSE. The quality of a ranking model is
NDCG@20, next to the NDCG@20 of a ranking by popularity.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from shunter.errors import UnknownNameError
from shunter.markdown import plain
from shunter.reporting.page.figures import Axis, Chart, Mark
from shunter.reporting.page.format import moment
from shunter.reporting.page.render import render_view
from shunter.retraining.nightly_runs import nightly_runs_of
from shunter.tracking.history import TrackedRun, read_runs

MOST_LISTED = 14  # number of nightly runs in Prefect's table
SIDES = ("champion", "challenger", "popularity")
LABELS = {"ne": "NE", "auc": "AUC", "rmse": "RMSE", "ndcg20": "NDCG@20"}
FIGURES = {
    "ne": "NE on the evaluation day (below 1 beats the base rate)",
    "auc": "AUC on the evaluation day",
    "rmse": "RMSE on the evaluation day, in the unit of the label",
    "ndcg20": "NDCG@20 on the evaluation day, of users that both models know",
}


def build_trend(name: str) -> str:
    """Return the page of all finished nightly runs of a registered model as HTML.

    Raises:
        UnknownNameError: The model has no finished nightly run.
        TrackingError: The store cannot be read.
    """
    nights = [night for night in reversed(nightly_runs_of(name)) if "nightly.day" in night.tags]
    if not nights:
        known = {run.tags["nightly.model"] for run in read_runs(("nightly",)) if "nightly.model" in run.tags}
        raise UnknownNameError("model that was retrained nightly", name, sorted(known))
    return render_view(trend_view(name, nights), [Path(__file__).with_name("trend.html.j2")])


def trend_view(name: str, nights: Sequence[TrackedRun]) -> dict[str, Any]:
    """Return the template values of the page."""
    return {
        "title": f"Nightly runs of {name}",
        "kind": "nightly",
        "run_id": nights[-1].run_id,
        "status": nights[-1].status,
        "reason": None,
        "started": moment(nights[0].started_at),
        "written": moment(datetime.now(UTC).timestamp()),
        "tiles": [],
        "contents": [],
        "trend": {
            "chart": trend_chart(nights),
            "columns": _columns(nights),
            "nights": [_line(night) for night in reversed(nights)],
        },
    }


def trend_chart(nights: Sequence[TrackedRun]) -> Chart | None:
    """Return the quality of champions and challengers by day; None if no nightly run recorded it."""
    first = date.fromisoformat(nights[0].tags["nightly.day"])
    points = [
        Mark(
            group=group,
            series=group,
            values={"day": float((date.fromisoformat(night.tags["nightly.day"]) - first).days), **values},
            tip=[
                f"{side}, {night.tags['nightly.day']}",
                night.tags["nightly.outcome"],
                *(f"{LABELS[key]} {value:.4f}" for key, value in values.items()),
            ],
            star=side == "challenger" and night.tags["nightly.outcome"] in ("promoted", "first champion"),
        )
        for night in nights
        for group, side in enumerate(SIDES)
        if (values := _figures(night, side))
    ]
    if not points:
        return None
    x = Axis(key="day", label=f"days since {first}", zero=True, whole=True)
    y = [Axis(key=key, label=FIGURES[key]) for key in _known(nights)]
    return Chart(x=[x], y=y, groups=SIDES, points=points, marks=["★ became champion"], connect=True)


def trend_table(name: str) -> str:
    """Return the newest nightly runs of a registered model as a Markdown table; empty without nightly runs.

    Raises:
        TrackingError: The store cannot be read.
    """
    nights = [night for night in nightly_runs_of(name)[:MOST_LISTED] if "nightly.day" in night.tags]
    if not nights:
        return ""
    columns = [("day", "day"), ("outcome", "outcome"), ("champion", "version"), *_columns(nights)]
    cells = [[line[key] for key, _ in columns] for line in map(_line, nights)]
    lines = [
        [f"{one:.4f}" if isinstance(one, float) else "" if one is None else plain(one) for one in row] for row in cells
    ]
    rows = [[title for _, title in columns], ["---"] * len(columns), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _figures(night: TrackedRun, side: str) -> dict[str, float]:
    # Names with a full stop: the NE of earlier versions' nightly runs, and the metrics of ranking models.
    names = {key: (f"nightly/{side}_{key}", f"nightly.{side}_{key}") for key in FIGURES}
    found = {key: next((night.metrics[one] for one in of if one in night.metrics), None) for key, of in names.items()}
    return {key: value for key, value in found.items() if value is not None}


def _known(nights: Sequence[TrackedRun]) -> list[str]:
    """Return the names of the metrics that the nightly runs have logged."""
    return [key for key in FIGURES if any(key in _figures(night, side) for night in nights for side in SIDES)]


def _columns(nights: Sequence[TrackedRun]) -> list[tuple[str, str]]:
    """Return key and title of each table column that contains a metric."""
    return [
        (f"{side}_{key}", f"{LABELS[key]} {side}")
        for key in _known(nights)
        for side in SIDES
        if any(key in _figures(night, side) for night in nights)
    ]


def _line(night: TrackedRun) -> dict[str, Any]:
    champion = night.tags.get("nightly.champion", "None")
    return {
        "day": night.tags["nightly.day"],
        "outcome": night.tags["nightly.outcome"],
        "champion": "" if champion == "None" else champion,
        "findings": night.metrics.get("nightly.findings"),
        "reason": night.tags.get("nightly.reason", ""),
        **{f"{side}_{key}": _figures(night, side).get(key) for side in SIDES for key in FIGURES},
    }
