"""Template values of the report page: its head, its registered sections, and the sections of most runs."""

import base64
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from shunter.hardware.units import JOULES_PER_KWH
from shunter.reporting.page.figures import interval_bars, name_of, placements_chart, power_chart
from shunter.reporting.page.format import duration, figure, moment
from shunter.reporting.page.format import energy as energy_words
from shunter.reporting.page.sections import REPORT_SECTIONS
from shunter.tracking.convention import HEADLINES, LEARNED, PART_JOULES, TOTAL_SECONDS, read_account
from shunter.tracking.evidence import Figures, read_evidence
from shunter.tracking.history import TrackedRun
from shunter.tracking.tree import RunTree

SIDES = REPORT_SECTIONS.entry("ranking").capabilities["artifact"]
MOST_ROWS = 200
LONGEST_STEPS = 3  # number of steps that are listed with the time of a run
LEAST_EARLIER_SHARE = 1e-3  # smallest share of the time that counts as earlier attempts; less is rounding
QUALITIES = ("auc", "ne", "logloss", "calibration")
QUALITIES_OF_NUMBERS = ("rmse", "mae", "relative_loss", "calibration")
ABSENT = {
    **dict.fromkeys(("rank", "step_source", "kwh", "energy_source", "cost", "memory_gib", "lost_because")),
    "is_here": True,
    "accelerator": "unknown",
}


@dataclass(frozen=True)
class Tile:
    """Headline number of the page, with its label and a note."""

    title: str
    value: str
    note: str = ""
    is_text: bool = False


# Steps of a command whose energy is logged by `shunter.tracking.convention.PART_JOULES`.
ENERGY_PARTS = {
    "start": "start, data and profile",
    "work": "placement, search, training and registration",
    "report": "report",
}
ROWS_JUDGED = ("pairs", "positives", "repeats")


def decision_rows(tree: RunTree) -> list[dict[str, Any]]:
    """Return the rows of the table of all candidate placements; empty if no placement was chosen."""
    if "decision.json" not in tree.artifacts:
        return []
    table = json.loads(tree.artifacts["decision.json"])
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    # Replace NaN of unknown numbers, which JSON lacks; and add columns that tables of earlier versions lack.
    return [
        {**ABSENT, **{k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}} for row in rows
    ]


def build_view(tree: RunTree) -> dict[str, Any]:
    """Return the values of the page's template: its head, and the values of each section that the run has."""
    run = tree.parent
    view: dict[str, Any] = {
        "title": name_of(run),
        "kind": run.kind or "MLflow",
        "run_id": run.run_id,
        "status": run.status,
        "reason": run.tags.get("run.reason"),
        "started": moment(run.started_at),
        "written": moment(datetime.now(UTC).timestamp()),
        "tiles": [asdict(tile) for tile in _tiles(tree)],
    }
    contents: dict[str, str] = {}
    missing = []
    for name in REPORT_SECTIONS.names:
        about = REPORT_SECTIONS.entry(name).capabilities
        artifact = about.get("artifact", about.get("profile_artifact"))
        values = REPORT_SECTIONS.load(name)(tree) if artifact is None or artifact in tree.artifacts else None
        if values:
            view[name] = values
            if "title" in about:
                contents[str(about.get("anchor", name))] = str(about["title"])
        elif "missing" in about:
            missing.append(about["missing"])
    return {**view, "contents": list(contents.items()), "missing": missing}


def _tiles(tree: RunTree) -> list[Tile]:
    run = tree.parent
    metrics, params = run.metrics, run.params
    tiles = []
    part = "test" if {"quality.test.auc", "quality.test.rmse"} & metrics.keys() else "validation"
    prefix = "quality.test" if part == "test" else "quality"
    if f"{prefix}.auc" in metrics:
        tiles.append(Tile(f"AUC, {part}", f"{metrics[f'{prefix}.auc']:.4f}", "measured"))
    if f"{prefix}.ne" in metrics:
        note = f"log loss {metrics[f'{prefix}.logloss']:.4f} nats" if f"{prefix}.logloss" in metrics else ""
        tiles.append(Tile(f"NE, {part}", f"{metrics[f'{prefix}.ne']:.4f}", note))
    if {f"{prefix}.{name}" for name in QUALITIES_OF_NUMBERS[:3]} <= metrics.keys():
        mae, relative = (metrics[f"{prefix}.{name}"] for name in ("mae", "relative_loss"))
        tiles.append(Tile(f"RMSE, {part}", f"{metrics[f'{prefix}.rmse']:.4f}", f"MAE {mae:.4f}"))
        tiles.append(Tile(f"relative loss, {part}", f"{relative:.4f}", "the best constant: 1"))
    if "quality.test.ndcg20" in metrics:
        recall = metrics.get("quality.test.recall20")
        note = "" if recall is None else f"recall@20 {recall:.4f}"
        if "quality.test.pairs" in metrics:
            pairs, rows, repeats = (f"{metrics[f'quality.test.{name}']:,.0f}" for name in ROWS_JUDGED)
            note += f"; {pairs} pairs of {rows} positives, {repeats} repeats: {params.get('request.repeats', 'drop')}"
        tiles.append(Tile("NDCG@20, test", f"{metrics['quality.test.ndcg20']:.4f}", note))
    tiles += _time_tiles(metrics)
    energy_values = energy(tree)
    if energy_values:
        tiles.append(Tile("energy", energy_values["joules"], f"{energy_values['source']}{energy_values['kwh']}"))
    if "placement.label" in params:
        tiles.append(Tile("placement", params["placement.label"], is_text=True))
    if "request.model" in params:
        tiles.append(
            Tile("requested model", params["request.model"], run.tags.get("model.registered", ""), is_text=True)
        )
    if "data.rows" in metrics:
        mean = "mean label" if f"{prefix}.rmse" in metrics else "base rate"
        note = f"{mean} {metrics['data.base_rate']:.4g}" if "data.base_rate" in metrics else ""
        tiles.append(Tile(f"rows of {params.get('data.name', 'the data')}", f"{metrics['data.rows']:,.0f}", note))
    return tiles


def _time_tiles(metrics: Mapping[str, float]) -> list[Tile]:
    """Return the wall-clock time of the command, with the longest steps of the last attempt."""
    account, total = read_account(metrics), metrics.get(TOTAL_SECONDS)
    if total is None:
        return []
    notes = ["measured"]
    if (earlier := total - sum(account.values())) >= LEAST_EARLIER_SHARE * total and account:
        notes.append(f"earlier attempts {duration(earlier)}")
    notes += [f"{name} {duration(seconds)}" for name, seconds in list(account.items())[:LONGEST_STEPS]]
    return [Tile("time of the command", duration(total), ", ".join(notes))]


def promotion(tree: RunTree) -> dict[str, Any] | None:
    """Return the registered version and its promotion to champion."""
    run = tree.parent
    version = run.tags.get("model.registered")
    if version is None:
        return None
    is_asked = run.params.get("request.promote") == "always"
    return {"version": version, "obstacle": run.tags.get("model.not_promoted", ""), "is_asked": is_asked}


def popularity(tree: RunTree) -> list[dict[str, Any]]:
    """Return the quality of a ranking model and of a ranking by popularity; empty for other models."""
    if SIDES in tree.artifacts:  # the ranking section shows them
        return []
    run = tree.parent
    names = ("ndcg20", "recall20")
    rows = [("the model", "quality.test", True), ("by popularity", "baseline.popularity.test", False)]
    lines = [
        {"name": name, "is_result": is_result, **{one: run.metrics.get(f"{prefix}.{one}") for one in names}}
        for name, prefix, is_result in rows
    ]
    return lines if lines[1]["ndcg20"] is not None else []


def decision(tree: RunTree) -> dict[str, Any] | None:
    """Return the chosen placement with its explanation, and the table of all candidates."""
    params, tags = tree.parent.params, tree.parent.tags
    rows = decision_rows(tree)
    if "placement.label" not in params:
        return None
    limits = {
        name.removeprefix("request."): value
        for name, value in tree.parent.metrics.items()
        if name.startswith(("request.max_", "request.min_"))
    }
    words = tree.artifacts.get("decision.md", tags.get("decision.reason", ""))
    binds = tags.get("decision.binds", "")
    return {
        "label": params["placement.label"],
        "binds": "" if binds == "nothing" else binds,
        "words": words,
        "chart": placements_chart(rows, limits),
        "intervals": interval_bars(rows),
        "rows": list(map(_shown_placement, rows[:MOST_ROWS])),
        "left_out": max(0, len(rows) - MOST_ROWS),
    }


def _shown_placement(row: Mapping[str, Any]) -> dict[str, str]:
    """Return a stored row of the table of placements as texts for display, with units and sources."""

    def sourced(text: str, source: str) -> str:
        return f"{text} ({row[source]})" if row.get(source) else text

    kwh, gib, cost = row["kwh"], row["memory_gib"], row["cost"]
    why = row["lost_because"]
    return {
        "placement": str(row["placement"]),
        "outcome": "chosen" if row["rank"] == 1 else "excluded" if row.get("excluded_by") else "behind",
        "why": why or "",
        "time": sourced(duration(3600 * row["hours"]), "step_source"),
        "energy": "unknown" if kwh is None else sourced(energy_words(kwh), "energy_source"),
        "cost": "unknown" if cost is None else sourced(figure(cost, 3), "price_source"),
        "memory": "unknown" if gib is None else sourced(f"{figure(gib, 3)} GiB", "memory_source"),
        "where": "this machine" if row["is_here"] else "elsewhere",
    }


def prediction(tree: RunTree) -> list[dict[str, Any]]:
    """Return predicted figures with their intervals, and the measured figures of the run."""
    metrics = tree.parent.metrics
    evidence = read_evidence(tree.parent.tags)
    measured = evidence.measured if evidence else Figures()
    row = next((one for one in decision_rows(tree) if one["rank"] == 1), ABSENT)
    members = [run.metrics for run in tree.of_kind("member")]
    rates = [member["throughput.samples_per_second"] for member in members if "throughput.samples_per_second" in member]
    peaks = [member["memory.peak_bytes"] for member in members if "memory.peak_bytes" in member]
    watts = metrics.get("energy.mean_watts")
    seconds = sum(metrics.get(f"time.{step}_step_seconds", 0.0) for step in ("tune", "train"))
    job_seconds, most = metrics.get("prediction.job_seconds"), "search and training"
    joules = None if row["kwh"] is None else row["kwh"] * JOULES_PER_KWH
    power_source, rates_mean = tree.parent.tags.get("energy.source", ""), sum(rates) / len(rates) if rates else None
    rate, memory = metrics.get("prediction.samples_per_second"), _gib(metrics.get("prediction.memory_bytes"))
    unbounded = ("", 1.0)  # otherwise the column of the decision's table, and its factor to the shown unit
    lines = [
        ("tuning and training, s", job_seconds, ("hours", 3600.0), seconds, most),
        ("its energy, J", joules, ("kwh", JOULES_PER_KWH), measured.joules, measured.joules_source or ""),
        ("samples per second", rate, unbounded, rates_mean, "mean of the members"),
        ("peak memory, GiB", memory, unbounded, _gib(max(peaks, default=None)), "largest"),
        ("power, W", metrics.get("prediction.watts"), unbounded, watts, power_source),
    ]
    shown = []
    for name, predicted, (key, factor), found, note in lines:
        low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
        bounds = None if low is None or high is None else (factor * low, factor * high)
        if predicted and found:
            shown.append({"name": name, "predicted": predicted, "bounds": bounds, "found": found, "note": note})
    return shown


def results(tree: RunTree) -> dict[str, Any] | None:
    """Return the qualities of members, ensemble and result, and a warning if the positives are few."""
    lines, is_number = [], "quality.rmse" in tree.parent.metrics
    for run in (*tree.of_kind("member", "ensemble"), tree.parent):
        for part, prefix in (("validation", "quality"), ("test", "quality.test")):
            names = QUALITIES_OF_NUMBERS if is_number else QUALITIES
            figures = {name: run.metrics.get(f"{prefix}.{name}") for name in names}
            if figures[names[0]] is not None or figures[names[1]] is not None:
                is_result = run is tree.parent
                name = "the result" if is_result else name_of(run)
                lines.append({"name": name, "part": part, "is_result": is_result, **figures})
    too_few = tree.parent.tags.get("search.too_few_positives")
    return {"rows": lines, "too_few": too_few, "is_number": is_number} if lines or too_few else None


def ensemble(tree: RunTree) -> dict[str, Any] | None:
    """Return the ensemble's weights, the alternative combinations of its members, and the costs of a prediction."""
    reason = tree.parent.tags.get("ensemble.reason")
    if not reason:
        return None
    figures = sorted(figure for run in tree.of_kind("ensemble") for figure in run.metrics.items())
    weights, tried = (
        [(name.removeprefix(prefix), value) for name, value in figures if name.startswith(prefix)]
        for prefix in ("ensemble.weight.", "ensemble.tried_ne.")
    )
    return {
        "reason": reason,
        "weights": [{"name": name, "percent": 100 * value, "text": f"{value:.3f}"} for name, value in weights],
        "ways": [{"name": name, "ne": ne} for name, ne in sorted(tried, key=lambda one: (one[1], one[0]))],
        "serving": _serving(tree),
    }


def _serving(tree: RunTree) -> list[dict[str, Any]]:
    """Return the cost of a prediction of one row with each candidate, the result last."""
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


def baselines(tree: RunTree) -> list[dict[str, Any]]:
    """Return quality and cost of each baseline on the test part; empty if the ranking section shows them."""
    if SIDES in tree.artifacts:
        return []
    run = tree.parent
    suffix = ".verdict"
    names = [
        name.removeprefix("baseline.").removesuffix(suffix)
        for name in run.tags
        if name.startswith("baseline.") and name.endswith(suffix)
    ]
    lines = []
    for name in sorted(names, reverse=True):  # lr before fm: the simpler model first
        of = f"baseline.{name}"
        lines.append(
            {
                "name": name,
                "verdict": run.tags[f"{of}{suffix}"],
                "auc": run.metrics.get(f"{of}.test.auc"),
                "ne": run.metrics.get(f"{of}.test.ne"),
                "logloss": run.metrics.get(f"{of}.test.logloss"),
                **{key: run.metrics.get(f"{of}.test.{key}") for key in ("rmse", "mae", "relative_loss")},
                "seconds": run.metrics.get(f"{of}.train_seconds"),
                "joules": run.metrics.get(f"{of}.joules"),
                "trained_on": run.tags.get(f"{of}.trained_at", "")[:10] or "this run",
            }
        )
    return lines


def energy(tree: RunTree) -> dict[str, Any] | None:
    """Return the energy of the run with its uncertainty and its source, and the power over time."""
    run = tree.parent
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
        "parts": [
            {"name": name, "joules": f"{run.metrics[metric]:,.0f}", "source": run.tags[f"energy.{part}_source"]}
            for part, name in ENERGY_PARTS.items()
            if (metric := PART_JOULES.format(part)) in run.metrics
        ],
        "chart": power_chart(tree),
    }


def settings(tree: RunTree) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return all parameters, metrics and tags of the run, of its members and of its ensemble."""

    def title(child: TrackedRun) -> str:  # without the kind if the name begins with it
        name = name_of(child)
        return name if name.startswith(str(child.kind)) else f"{child.kind} {name}"

    run = tree.parent
    hidden = ("mlflow.", "learning.steps", LEARNED, "decision.reason")  # the reason is shown in another section
    tags = {name: text for name, text in run.tags.items() if not name.startswith(hidden)}
    again = {metric for metric, _ in HEADLINES.values()}
    own = {name: f"{value:.6g}" for name, value in run.metrics.items() if name not in run.params and name not in again}
    tables = [("Parameters", run.params), ("Figures", own), ("Tags", tags)]
    tables += [
        (title(child), {**child.params, **{k: f"{v:.6g}" for k, v in child.metrics.items()}})
        for child in tree.of_kind("member", "ensemble")
    ]
    return [(name, sorted((str(k), str(v)) for k, v in values.items())) for name, values in tables if values]


def _gib(count: float | None) -> float | None:
    return None if count is None else count / 2**30


FOLDER = "model_card"
PICTURE = re.compile(r"^!\[(?P<words>[^\]]*)\]\((?P<name>[^)]+)\)\s*$")


def card_section(tree: RunTree) -> list[dict[str, str]]:
    """Return the parts of the card in order: Markdown as `text`, or a `picture` with its description as `words`.

    A picture is embedded as an image, in which scripts cannot run.
    """
    parts: list[dict[str, str]] = []
    lines: list[str] = []
    for line in tree.artifacts.get(f"{FOLDER}/model_card.md", "").splitlines():
        picture = PICTURE.match(line)
        drawing = tree.artifacts.get(f"{FOLDER}/{picture['name']}") if picture else None
        if picture is None or drawing is None:
            lines.append(line)
            continue
        encoded = base64.b64encode(drawing.encode()).decode()
        parts.append({"text": "\n".join(lines)})
        parts.append({"picture": f"data:image/svg+xml;base64,{encoded}", "words": picture["words"]})
        lines = []
    return [*parts, {"text": "\n".join(lines)}] if lines else parts
