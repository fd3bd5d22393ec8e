"""Contents of the interactive figures of a report, which `page.js` draws."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shunter.planner.explain.cells import energy_unit, time_unit
from shunter.record import Record
from shunter.reporting.page.format import figure
from shunter.tracking.convention import WATTS
from shunter.tracking.history import TrackedRun
from shunter.tracking.tree import RunTree

MOST_GROUPS = 7  # number of colours of the page; further accelerators share the last colour
MOST_BARS = 12  # number of placements whose intervals are shown
OTHERS = "others"
Value = float | None
IS_HIGHER_BETTER = ("quality.auc", "quality.ndcg20", "quality.recall20")


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Axis of a figure that a reader can choose.

    Attributes:
        key: Key of the axis in the values of the points.
        label: Label with the unit, and whether measured, estimated or predicted.
        log: Whether the axis is logarithmic if all values are positive.
        zero: Whether the axis begins at 0.
        whole: Whether ticks are at integers only.
        limit: Value at which a line is drawn; None for no line.
        limit_label: Name of the line.
    """

    key: str
    label: str
    log: bool = False
    zero: bool = False
    whole: bool = False
    limit: float | None = None
    limit_label: str = ""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Point of a figure.

    Attributes:
        group: Index of the group, which determines the colour.
        values: Values by axis; a point without a value for a chosen axis is not drawn.
        tip: Lines of the tooltip, the first as a title.
        series: Number of the series; marks of one series are connected in their order.
        hollow: Whether the mark is not filled.
        ring: Whether the mark has a dark rim.
        star: Whether the mark is a large star.
    """

    group: int
    values: Mapping[str, Value]
    tip: Sequence[str]
    series: int = 0
    hollow: bool = False
    ring: bool = False
    star: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart(Record):
    """Figure with selectable axes, points, and a legend of their marks."""

    x: Sequence[Axis]
    y: Sequence[Axis]
    groups: Sequence[str]
    points: Sequence[Mark]
    marks: Sequence[str] = ()
    connect: bool = False


def placements_chart(rows: Sequence[Mapping[str, Any]], limits: Mapping[str, float]) -> Chart | None:
    """Return a chart of all candidate placements: predicted energy, cost, memory and quality probability over time."""
    if not rows:
        return None
    names = list(dict.fromkeys(str(row["accelerator"]) for row in sorted(rows, key=lambda row: not row.get("is_here"))))
    groups = names if len(names) <= MOST_GROUPS + 1 else [*names[:MOST_GROUPS], OTHERS]
    units = _units(rows)
    x = Axis(
        key="hours",
        label=f"time of the whole job ({units['hours'].name}, predicted)",
        log=True,
        limit=units["hours"].of(limits.get("max_hours")),
        limit_label="--max-hours",
    )
    vertical = [
        ("kwh", f"energy of the whole job ({units['kwh'].name}, predicted)", "max_kwh"),
        ("cost", "cost of the whole job (predicted)", "max_cost"),
        ("memory_gib", "memory (GiB, predicted)", "max_memory_gib"),
        ("quality_probability", "probability of the required quality (from past runs)", "min_auc_probability"),
    ]
    y = [
        Axis(
            key=key,
            label=label,
            log=key != "quality_probability",
            limit=units.get(key, SAME).of(limits.get(limit)),
            limit_label="--" + limit.replace("_", "-"),
        )
        for key, label, limit in vertical
        if any(row.get(key) is not None for row in rows)
    ]
    points = [_placement_mark(row, groups, units) for row in rows]
    marks = ["★ chosen", "○ breaks a limit", "dark rim: step time measured"]
    return Chart(x=[x], y=y, groups=groups, points=points, marks=marks) if y else None


def interval_bars(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the predicted intervals of time and energy of the best placements; the rows are given best first."""
    units, shown = _units(rows), rows[:MOST_BARS]
    titles = {"hours": "time of the whole job", "kwh": "energy of the whole job"}
    return [
        {"title": f"{title} ({units[key].name}, predicted, logarithmic)", "bars": bars}
        for key, title in titles.items()
        if (bars := _bars_of(shown, key, units[key]))
    ]


def _bars_of(rows: Sequence[Mapping[str, Any]], key: str, unit: "_Unit") -> list[dict[str, Any]]:
    """Return a bar on a common logarithmic axis for each placement with a known interval of this quantity."""
    ends = (key, f"{key}_low", f"{key}_high")
    known = [row for row in rows if all(row.get(end) for end in ends)]
    least = math.log(min((row[f"{key}_low"] for row in known), default=1.0))
    width = math.log(max((row[f"{key}_high"] for row in known), default=1.0)) - least or 1.0
    bars = []
    for row in known:
        at, low, high = (100 * (math.log(row[end]) - least) / width for end in ends)
        value, smallest, largest = (figure(unit.of(row[end]), 3) for end in ends)
        bar = {"name": str(row["placement"]), "low": low, "spread": high - low, "at": at}
        bars.append({**bar, "text": f"{value} ({smallest} to {largest})", "chosen": row.get("rank") == 1})
    return bars


@dataclass(frozen=True)
class _Unit:
    """Unit in which a quantity is shown, with the factor from the stored unit."""

    scale: float = 1.0
    name: str = ""

    def of(self, value: Any) -> Any:
        """Return the value in this unit; None if the value is None."""
        return None if value is None else self.scale * value


SAME = _Unit()


def _units(rows: Sequence[Mapping[str, Any]]) -> dict[str, _Unit]:
    """Return the units of time and energy in which the smallest value of the rows is readable."""
    least = {key: min((row[key] for row in rows if row.get(key) is not None), default=0.0) for key in ("hours", "kwh")}
    return {"hours": _Unit(*time_unit(least["hours"])), "kwh": _Unit(*energy_unit(least["kwh"]))}


def _placement_mark(row: Mapping[str, Any], groups: Sequence[str], units: Mapping[str, _Unit]) -> Mark:
    name = str(row["accelerator"])
    keys = ("hours", "kwh", "cost", "memory_gib", "quality_probability")
    bounds = [f"{key}_{end}" for key in ("hours", "kwh", "cost") for end in ("low", "high")]
    row = {**row, **{key: units.get(key.split("_")[0], SAME).of(row.get(key)) for key in (*keys, *bounds)}}
    lines = [
        f"time {_range(row, 'hours')} {units['hours'].name}, step {row.get('step_source')}",
        f"energy {_range(row, 'kwh')} {units['kwh'].name}, power {row.get('energy_source')}",
        f"cost {_range(row, 'cost')}, price {row.get('price_source') or 'unknown'}",
        f"memory {_short(row.get('memory_gib'))} GiB, {row.get('memory_source')}",
        "in this machine" if row.get("is_here") else "not in this machine",
        str(row.get("lost_because") or "chosen"),
    ]
    return Mark(
        group=groups.index(name) if name in groups else len(groups) - 1,
        values={key: row.get(key) for key in keys},
        tip=[str(row["placement"]), *lines],
        hollow=bool(row.get("excluded_by")),
        ring=row.get("step_source") == "measured",
        star=row.get("rank") == 1,
    )


CLICKS = (
    Axis(key="quality.ne", label="NE on validation (measured; lower is better)"),
    Axis(key="quality.auc", label="AUC on validation (measured; higher is better)"),
    Axis(key="quality.logloss", label="log loss on validation (nats; lower is better)"),
)
NUMBERS = (
    Axis(key="quality.relative_loss", label="relative loss on validation (measured; lower is better)"),
    Axis(key="quality.rmse", label="RMSE on validation (measured; lower is better)"),
    Axis(key="quality.mae", label="MAE on validation (measured; lower is better)"),
)
RANKINGS = (
    Axis(key="quality.ndcg20", label="NDCG@20 on validation (measured; higher is better)"),
    Axis(key="quality.recall20", label="recall@20 on validation (measured; higher is better)"),
)


def trained_chart(tree: RunTree) -> Chart | None:
    """Return a chart of all training runs: validation quality over the time and energy of the training."""
    kinds = ("trial", "baseline", "member", "ensemble")
    y = next(
        (axes for axes in (CLICKS, NUMBERS, RANKINGS) if any(axes[0].key in run.metrics for run in tree.children)), None
    )
    if y is None:
        return None
    runs = [run for run in tree.of_kind(*kinds) if y[0].key in run.metrics]
    if not runs:
        return None
    # Joules are shown of one source: measured if any run was measured, otherwise estimated.
    sources = {_energy_source(run) for run in runs if "energy.joules" in run.metrics}
    source = "measured" if "measured" in sources else min(sources, default="unavailable")
    x = [
        Axis(key="time.train_seconds", label="training time (s, measured)", log=True),
        Axis(key="energy.joules", label=f"energy of the training (J, {source})", log=True),
    ]
    x = [axis for axis in x if any(axis.key in run.metrics for run in runs)]
    there = [kind for kind in kinds if any(run.kind == kind and _has_effort(run) for run in runs)]
    if not there:
        return None
    shown = [run for run in runs if run.kind in there]
    asked = f"quality.{tree.parent.params.get('request.select_by', 'ne').replace('@', '')}"
    selecting = asked if asked in {axis.key for axis in y} else y[0].key
    sign = -1 if selecting in IS_HIGHER_BETTER else 1
    best = min((run for run in shown if _has_effort(run)), key=lambda run: sign * run.metrics.get(selecting, math.inf))
    points = [
        Mark(
            group=there.index(run.kind),
            values={
                axis.key: run.metrics.get(axis.key)
                if axis.key != "energy.joules" or _energy_source(run) == source
                else None
                for axis in (*x, *y)
            },
            tip=_trained_tip(run),
            hollow=run.tags.get("trial.state") == "pruned",
            star=run is best,
        )
        for run in shown
    ]
    return Chart(x=x, y=y, groups=there, points=points, marks=["★ best on validation", "○ stopped early"])


def _energy_source(run: TrackedRun) -> str:
    return run.tags.get("energy.source", "source unknown")


def _has_effort(run: TrackedRun) -> bool:
    return "time.train_seconds" in run.metrics or "energy.joules" in run.metrics


def _trained_tip(run: TrackedRun) -> list[str]:
    metrics, params = run.metrics, run.params
    lines = [
        name_of(run),
        _quality_text(metrics),
        f"{_short(metrics.get('time.train_seconds'))} s, {_short(metrics.get('energy.joules'))} J "
        f"({_energy_source(run)})",
    ]
    chosen = [
        f"{key.removeprefix('model.')} {params[key]}"
        for key in sorted(params)
        if key.startswith("model.") and key.endswith(("family", "dim", "rate", "widths", "dropout"))
    ]
    return [*lines, *chosen]


def _quality_text(metrics: Mapping[str, float]) -> str:
    if "quality.ne" in metrics:
        return f"NE {metrics['quality.ne']:.4f}, AUC {_short(metrics.get('quality.auc'))}"
    if "quality.relative_loss" in metrics:
        return f"relative loss {metrics['quality.relative_loss']:.4f}, RMSE {_short(metrics.get('quality.rmse'))}"
    return f"NDCG@20 {metrics['quality.ndcg20']:.4f}, recall@20 {_short(metrics.get('quality.recall20'))}"


def curves_chart(tree: RunTree) -> Chart | None:
    """Return a chart with the training curves of the members, and in grey those of the trials."""
    marks = {"quality.ne", "quality.relative_loss", "quality.ndcg20"}
    judged = [run for run in tree.children if marks & tree.curves[run.run_id].keys()]
    members = [run for run in judged if run.kind == "member"]
    trials = [run for run in judged if run.kind == "trial"]
    if not members and not trials:
        return None
    shown = members[:MOST_GROUPS]
    groups = [name_of(run) for run in shown] + (["trials"] if trials else [])
    y = [
        Axis(key="quality.ne", label="NE on validation (below 1 beats the base rate)"),
        Axis(key="quality.auc", label="AUC on validation"),
        Axis(key="quality.logloss", label="log loss on validation (nats)"),
        Axis(key="quality.relative_loss", label="relative loss on validation (below 1 beats the best constant)"),
        Axis(key="quality.rmse", label="RMSE on validation"),
        Axis(key="quality.mae", label="MAE on validation"),
        Axis(key="quality.train.logloss", label="log loss in training (nats, while the weights changed)"),
        Axis(key="quality.ndcg20", label="NDCG@20 on validation"),
        Axis(key="quality.recall20", label="recall@20 on validation"),
        Axis(key="quality.train.bpr_loss", label="loss in training (while the weights changed)"),
    ]
    points: list[Mark] = []
    for series, run in enumerate([*trials, *shown]):
        group = len(shown) if run.kind == "trial" else shown.index(run)
        points += _curve_marks(run, tree.curves[run.run_id], [axis.key for axis in y], group, series)
    there = [axis for axis in y if any(point.values.get(axis.key) is not None for point in points)]
    x = Axis(key="epoch", label="epoch", zero=True, whole=True)
    return Chart(x=[x], y=there, groups=groups, points=points, marks=["★ kept weights"], connect=True)


def _curve_marks(
    run: TrackedRun, curves: Mapping[str, Sequence[tuple[int, float]]], keys: Sequence[str], group: int, series: int
) -> list[Mark]:
    """Return one mark of a run for each epoch; the final result, which is logged later, is left out."""
    by_epoch: dict[int, dict[str, float]] = {}
    for key in keys:
        for epoch, value in curves.get(key, ()):
            by_epoch.setdefault(epoch, {}).setdefault(key, value)
    # The training loss is logged after each epoch, and never with the final result.
    losses = ("quality.train.logloss", "quality.train.bpr_loss")
    of_epochs = {epoch for key in losses for epoch, _ in curves.get(key, ())} or set(by_epoch)
    best = run.metrics.get("training.best_epoch")
    return [
        Mark(
            group=group,
            series=series,
            values={"epoch": float(epoch), **values},
            tip=[f"{name_of(run)}, epoch {epoch}", *(f"{key} {value:.4f}" for key, value in values.items())],
            star=run.kind == "member" and epoch == best,
            hollow=run.kind == "trial",
        )
        for epoch, values in sorted(by_epoch.items())
        if epoch in of_epochs
    ]


def power_chart(tree: RunTree) -> Chart | None:
    """Return a chart of the power in watts over the time of the whole run."""
    curves = tree.curves[tree.parent.run_id]
    points = curves.get(WATTS) or curves.get("energy.watts", ())  # the second name in runs of earlier versions
    if len(points) < 2:
        return None
    source = _energy_source(tree.parent)
    marks = [
        Mark(group=0, values={"seconds": float(step), "watts": watts}, tip=[f"{watts:.4g} W", f"second {step}"])
        for step, watts in points
    ]
    return Chart(
        x=[Axis(key="seconds", label="seconds since the start", zero=True)],
        y=[Axis(key="watts", label=f"power (W, {source})", zero=True)],
        groups=[f"power, {source}"],
        points=marks,
        connect=True,
    )


def name_of(run: TrackedRun) -> str:
    """Return the name of a run, or the beginning of its id if it has no name."""
    return run.tags.get("mlflow.runName") or run.run_id[:12]


def _range(row: Mapping[str, Any], key: str) -> str:
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    text = _short(row.get(key))
    return text if low is None or high is None else f"{text} ({_short(low)} to {_short(high)})"


def _short(value: Any) -> str:
    return "unknown" if value is None else f"{value:.4g}"
