"""What the sections of a report say: from a run and its artifacts to words and numbers for the template."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from shunter.reporting.page.features import FeatureSummary, ValueStatistics
from shunter.reporting.page.figures import curves_chart, name_of, trained_chart
from shunter.reporting.page.format import duration, energy, figure, moment
from shunter.reporting.page.model_card import card_section
from shunter.reporting.page.plan import plan_section
from shunter.reporting.page.ranking import ranking_section
from shunter.reporting.page.stalls import stall_section
from shunter.reporting.page.time import checkpoint_lines, step_bars, tier_lines, wait_bars
from shunter.tracking.convention import TOTAL_SECONDS, read_account
from shunter.tracking.history import TrackedRun
from shunter.tracking.tree import RunTree

MOST_ROWS = 200
SHOWN_FIELDS = 8
LONGEST_STEPS = 3  # that are named beside the time of a run
FEATURES = "features.json"
QUALITIES = ("auc", "ne", "logloss", "calibration")
ABSENT = {
    **dict.fromkeys(("rank", "step_source", "kwh", "energy_source", "cost", "memory_gib", "lost_because")),
    "is_here": True,
    "accelerator": "unknown",
}
Words = Callable[[str], Any]


@dataclass(frozen=True)
class Tile:
    """A headline figure."""

    title: str
    value: str
    note: str = ""
    is_text: bool = False


ROWS_JUDGED = ("pairs", "positives", "repeats")


def decision_rows(tree: RunTree) -> list[dict[str, Any]]:
    """The table of all candidate placements, as rows; empty where nothing was chosen."""
    if "decision.json" not in tree.artifacts:
        return []
    table = json.loads(tree.artifacts["decision.json"])
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    # An unknown number comes back as NaN, which is neither JSON nor a figure; older tables lack some columns.
    return [{**ABSENT, **{key: None if _is_nan(value) else value for key, value in row.items()}} for row in rows]


def build_view(tree: RunTree, stalls: str | None, *, to_html: Words) -> dict[str, Any]:
    """Everything that the template shows.

    Args:
        tree: The run and its children.
        stalls: JSON of a stall report.
        to_html: Function from Markdown to HTML.
    """
    run = tree.parent
    features, ranking = tree.artifacts.get(FEATURES), ranking_section(tree)
    view: dict[str, Any] = {
        "title": name_of(run),
        "kind": run.kind or "MLflow",
        "run_id": run.run_id,
        "status": run.status,
        "reason": run.tags.get("run.reason"),
        "started": moment(run.started_at),
        "written": moment(datetime.now(UTC).timestamp()),
        "tiles": [asdict(tile) for tile in _tiles(tree)],
        "decision": _decision(tree, to_html),
        "comparison": _comparison(tree),
        "qualities": _qualities(tree),
        "promotion": _promotion(run),
        "too_few": run.tags.get("search.too_few_positives"),
        "ranking": ranking,
        "popularity": [] if ranking else _popularity(run),
        "baselines": [] if ranking else _baselines(run),
        "ensemble": _ensemble(tree),
        "steps": step_bars(run),
        "waits": wait_bars(tree),
        "plan": plan_section(tree),
        "checkpoints": checkpoint_lines(tree),
        "tiers": tier_lines(tree),
        "stalls": stall_section(stalls) if stalls else None,
        "energy": _energy(run),
        "features": _features(FeatureSummary.model_validate_json(features)) if features else None,
        "card": card_section(tree, to_html),
        "tables": _tables(tree),
    }
    view["contents"] = _contents(tree, view)
    view["missing"] = [
        words
        for section, words in (
            ("features", "statistics of the features (the run was made before they were kept)"),
            ("stalls", "a stall breakdown (`shunter profile --data` of this data and model measures one)"),
            ("card", "a model card"),
        )
        if not view[section]
    ]
    return view


def _tiles(tree: RunTree) -> list[Tile]:
    run = tree.parent
    metrics, params = run.metrics, run.params
    tiles = []
    part = "test" if "quality.test.auc" in metrics else "validation"
    prefix = "quality.test" if part == "test" else "quality"
    if f"{prefix}.auc" in metrics:
        tiles.append(Tile(f"AUC, {part}", f"{metrics[f'{prefix}.auc']:.4f}", "measured"))
    if f"{prefix}.ne" in metrics:
        note = f"log loss {metrics[f'{prefix}.logloss']:.4f} nats" if f"{prefix}.logloss" in metrics else ""
        tiles.append(Tile(f"NE, {part}", f"{metrics[f'{prefix}.ne']:.4f}", note))
    if "quality.test.ndcg20" in metrics:
        recall = metrics.get("quality.test.recall20")
        note = "" if recall is None else f"recall@20 {recall:.4f}"
        if "quality.test.pairs" in metrics:
            pairs, rows, repeats = (f"{metrics[f'quality.test.{name}']:,.0f}" for name in ROWS_JUDGED)
            note += f"; {pairs} pairs of {rows} positives, {repeats} repeats: {params.get('request.repeats', 'drop')}"
        tiles.append(Tile("NDCG@20, test", f"{metrics['quality.test.ndcg20']:.4f}", note))
    tiles += _times(metrics)
    energy = _energy(run)
    if energy:
        tiles.append(Tile("energy", energy["joules"], f"{energy['source']}{energy['kwh']}"))
    if "placement.label" in params:
        tiles.append(Tile("placement", params["placement.label"], is_text=True))
    if "request.model" in params:
        tiles.append(
            Tile("model asked for", params["request.model"], run.tags.get("model.registered", ""), is_text=True)
        )
    if "data.rows" in metrics:
        note = f"base rate {metrics['data.base_rate']:.4g}" if "data.base_rate" in metrics else ""
        tiles.append(Tile(f"rows of {params.get('data.name', 'the data')}", f"{metrics['data.rows']:,.0f}", note))
    return tiles


def _times(metrics: Mapping[str, float]) -> list[Tile]:
    """The last attempt, with where most of its time went, and all attempts where there were more."""
    account, total = read_account(metrics), metrics.get(TOTAL_SECONDS, 0.0)
    last = sum(account.values())
    tiles = []
    if account:
        longest = ", ".join(f"{name} {duration(seconds)}" for name, seconds in list(account.items())[:LONGEST_STEPS])
        tiles.append(Tile("time of the last attempt", duration(last), f"measured; most of it {longest}"))
    if total > last:
        tiles.append(Tile("time of the whole run", duration(total), "measured"))
    return tiles


def _promotion(run: TrackedRun) -> dict[str, Any] | None:
    """The version in the registry, and whether the guard let it become the champion."""
    version = run.tags.get("model.registered")
    if version is None:
        return None
    is_asked = run.params.get("request.promote") == "always"
    return {"version": version, "obstacle": run.tags.get("model.not_promoted", ""), "is_asked": is_asked}


def _popularity(run: TrackedRun) -> list[dict[str, Any]]:
    """The ranking of a graph model beside the order by popularity; empty for other models."""
    names = ("ndcg20", "recall20")
    rows = [("the model", "quality.test", True), ("by popularity", "baseline.popularity.test", False)]
    lines = [
        {"name": name, "is_result": is_result, **{one: run.metrics.get(f"{prefix}.{one}") for one in names}}
        for name, prefix, is_result in rows
    ]
    return lines if lines[1]["ndcg20"] is not None else []


def _decision(tree: RunTree, to_html: Words) -> dict[str, Any] | None:
    params, tags = tree.parent.params, tree.parent.tags
    rows = decision_rows(tree)
    if "placement.label" not in params:
        return None
    words = tree.artifacts.get("decision.md", tags.get("decision.reason", ""))
    binds = tags.get("decision.binds", "")
    return {
        "label": params["placement.label"],
        "binds": "" if binds == "nothing" else binds,
        "words": to_html(words),
        "rows": list(map(_shown_placement, rows[:MOST_ROWS])),
        "left_out": max(0, len(rows) - MOST_ROWS),
    }


def _shown_placement(row: Mapping[str, Any]) -> dict[str, str]:
    """One candidate as `Decision.shown_rows` has it, from the figures that the run keeps."""

    def sourced(text: str, source: str) -> str:
        return f"{text} ({row[source]})" if row.get(source) else text

    kwh, gib, cost = row["kwh"], row["memory_gib"], row["cost"]
    why = row["lost_because"]
    return {
        "placement": str(row["placement"]),
        "outcome": "chosen" if row["rank"] == 1 else "excluded" if row.get("excluded_by") else "behind",
        "why": why or "",
        "time": sourced(duration(3600 * row["hours"]), "step_source"),
        "energy": "unknown" if kwh is None else sourced(energy(kwh), "energy_source"),
        "cost": "unknown" if cost is None else sourced(figure(cost, 3), "price_source"),
        "memory": "unknown" if gib is None else sourced(f"{figure(gib, 3)} GiB", "memory_source"),
        "where": "this machine" if row["is_here"] else "elsewhere",
    }


def _comparison(tree: RunTree) -> list[dict[str, Any]]:
    """What was predicted beside what the trainings of the members came to."""
    metrics = tree.parent.metrics
    members = [run.metrics for run in tree.of_kind("member")]
    rates = [member["throughput.samples_per_second"] for member in members if "throughput.samples_per_second" in member]
    peaks = [member["memory.peak_bytes"] for member in members if "memory.peak_bytes" in member]
    watts = metrics.get("energy.mean_watts")
    lines = [
        ("samples per second", metrics.get("prediction.samples_per_second"), _mean(rates), "mean of the members"),
        ("peak memory, GiB", _gib(metrics.get("prediction.memory_bytes")), _gib(max(peaks, default=None)), "largest"),
        (
            "tuning and training, s",
            metrics.get("prediction.job_seconds"),
            sum(metrics.get(f"time.{step}_step_seconds", 0.0) for step in ("tune", "train")),
            "predicted as an upper estimate of the epochs",
        ),
        ("power, W", metrics.get("prediction.watts"), watts, tree.parent.tags.get("energy.source", "")),
    ]
    return [
        {"name": name, "predicted": predicted, "found": found, "note": note}
        for name, predicted, found, note in lines
        if predicted and found
    ]


def _qualities(tree: RunTree) -> list[dict[str, Any]]:
    lines = []
    for run in (*tree.of_kind("member", "ensemble"), tree.parent):
        for part, prefix in (("validation", "quality"), ("test", "quality.test")):
            figures = {name: run.metrics.get(f"{prefix}.{name}") for name in QUALITIES}
            if figures["ne"] is not None or figures["auc"] is not None:
                is_result = run is tree.parent
                name = "the result" if is_result else name_of(run)
                lines.append({"name": name, "part": part, "is_result": is_result, **figures})
    return lines


def _ensemble(tree: RunTree) -> dict[str, Any] | None:
    reason = tree.parent.tags.get("ensemble.reason")
    if not reason:
        return None
    weights = [
        (name.removeprefix("ensemble.weight."), value)
        for run in tree.of_kind("ensemble")
        for name, value in sorted(run.metrics.items())
        if name.startswith("ensemble.weight.")
    ]
    return {
        "reason": reason,
        "weights": [{"name": name, "percent": 100 * value, "text": f"{value:.3f}"} for name, value in weights],
        "ways": _ways(tree),
        "serving": _serving(tree),
    }


def _serving(tree: RunTree) -> list[dict[str, Any]]:
    """What a prediction of one row costs with each candidate, the result last."""
    prefix = "serving.milliseconds."
    return [
        {
            "name": name,
            "milliseconds": run.metrics[f"{prefix}{name}"],
            "millijoules": None if joules is None else 1e3 * joules,
            "mebibytes": run.metrics.get(f"serving.weight_bytes.{name}", 0) / 2**20,
        }
        for run in tree.of_kind("ensemble")
        for name in sorted(
            (key.removeprefix(prefix) for key in run.metrics if key.startswith(prefix)),
            key=lambda name: (name == "result", name),
        )
        for joules in [run.metrics.get(f"serving.joules.{name}")]
    ]


def _ways(tree: RunTree) -> list[dict[str, Any]]:
    """Ways to combine the members that competed, the best first."""
    prefix = "ensemble.tried_ne."
    found = [
        (value, name.removeprefix(prefix))
        for run in tree.of_kind("ensemble")
        for name, value in run.metrics.items()
        if name.startswith(prefix)
    ]
    return [{"name": name, "ne": ne} for ne, name in sorted(found)]


def _baselines(run: TrackedRun) -> list[dict[str, Any]]:
    """What costs seconds, on the test part, beside the result."""
    suffix = ".verdict"
    names = [
        name.removeprefix("baseline.").removesuffix(suffix)
        for name in run.tags
        if name.startswith("baseline.") and name.endswith(suffix)
    ]
    lines = []
    for name in sorted(names, reverse=True):  # lr before fm: the simpler first
        of = f"baseline.{name}"
        lines.append(
            {
                "name": name,
                "verdict": run.tags[f"{of}{suffix}"],
                "auc": run.metrics.get(f"{of}.test.auc"),
                "ne": run.metrics.get(f"{of}.test.ne"),
                "logloss": run.metrics.get(f"{of}.test.logloss"),
                "seconds": run.metrics.get(f"{of}.train_seconds"),
                "joules": run.metrics.get(f"{of}.joules"),
            }
        )
    return lines


def _energy(run: TrackedRun) -> dict[str, str] | None:
    source = run.tags.get("energy.source")
    if source is None:
        return None
    joules, sigma = run.metrics.get("energy.joules"), run.metrics.get("energy.uncertainty_joules")
    idle = run.metrics.get("energy.idle_joules")
    spread = "" if sigma is None else f" ± {sigma:,.0f}"
    at_rest = "" if idle is None else f", {idle:,.0f} J of them at rest"
    return {
        "joules": "unknown" if joules is None else f"{joules:,.0f} J",
        "kwh": "" if joules is None else f", {figure(joules / 3.6e6, 3)} kWh",
        "value": "unknown" if joules is None else f"{joules:,.0f}{spread} J ({figure(joules / 3.6e6, 3)} kWh){at_rest}",
        "source": source,
        "method": run.tags.get("energy.method", ""),
        "uncertainty": run.tags.get("energy.uncertainty", ""),
    }


def _features(summary: FeatureSummary) -> dict[str, Any]:
    shown = summary.fields[:SHOWN_FIELDS]
    highest = max((value.interval[1] for field in shown for value in field.values), default=1.0)
    scale = min(1.0, max(highest, summary.base_rate, 1e-9))
    return {
        **summary.model_dump(exclude={"fields"}),
        "fields": [field.model_dump() for field in summary.fields],
        "shown": [
            {
                **field.model_dump(exclude={"values"}),
                "kind": field.kind.replace("_", "-"),
                "bars": [_value_bar(value, scale) for value in field.values],
            }
            for field in shown
        ],
        "scale": scale,
        "base_percent": 100 * summary.base_rate / scale,
    }


def _value_bar(value: ValueStatistics, scale: float) -> dict[str, Any]:
    low, high = value.interval
    return {
        "name": value.name,
        "percent": 100 * value.base_rate / scale,
        "low": 100 * low / scale,
        "spread": 100 * (high - low) / scale,
        "text": f"{100 * value.base_rate:.3g} %",
        "title": f"{value.rows:,} rows, base rate between {low:.4f} and {high:.4f} with 95 %",
    }


def _tables(tree: RunTree) -> list[tuple[str, list[tuple[str, str]]]]:
    """Everything that was written about the run, for whoever misses something above."""
    run = tree.parent
    hidden = {"learning.steps", "decision.reason"}  # the latter is told above
    tags = {name: text for name, text in run.tags.items() if not name.startswith("mlflow.") and name not in hidden}
    own = {name: f"{value:.6g}" for name, value in run.metrics.items() if name not in run.params}
    tables = [("Parameters", run.params), ("Figures", own), ("Tags", tags)]
    tables += [
        (f"{child.kind} {name_of(child)}", {**child.params, **{k: f"{v:.6g}" for k, v in child.metrics.items()}})
        for child in tree.of_kind("member", "ensemble")
    ]
    return [(title, sorted((str(k), str(v)) for k, v in values.items())) for title, values in tables if values]


def _contents(tree: RunTree, view: Mapping[str, Any]) -> list[tuple[str, str]]:
    sections = [
        ("decision", "Placement", view["decision"]),
        ("prediction", "Predicted and found", view["comparison"]),
        ("quality", "Quality against cost", trained_chart(tree)),
        ("curves", "Curves", curves_chart(tree)),
        ("results", "Results", view["qualities"]),
        ("ranking", "Ranking", view["ranking"]),
        ("promotion", "Registered", view["promotion"]),
        ("baselines", "Baselines", view["baselines"] or view["popularity"]),
        ("ensemble", "Ensemble", view["ensemble"]),
        ("plan", "Plan of the tables", view["plan"]),
        ("time", "Time", view["steps"] or view["waits"] or view["stalls"]),
        ("energy", "Energy", view["energy"]),
        ("features", "Features", view["features"]),
        ("card", "Model card", view["card"]),
        ("settings", "Settings", True),
    ]
    return [(anchor, title) for anchor, title, is_there in sections if is_there]


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _gib(count: float | None) -> float | None:
    return None if count is None else count / 2**30


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
