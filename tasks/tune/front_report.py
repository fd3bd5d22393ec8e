"""Pareto front of a search, as table in MLflow and as artifact of the running flow; the report page draws it."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shunter.engine.checkpoint.checked_files import write_text
from shunter.engine.metrics import figure_of
from shunter.markdown import narrow_tables, plain
from shunter.pareto import hypervolume
from shunter.search.front import AXES, all_rows, front_rows
from shunter.search.result import TuneResult
from shunter.tracking.reports import log_files

FRONT, TABLE = "front.json", "trials.csv"
KEY = "search-front"
# Losses (NE, and 1 - AUC) of a model that predicts the base rate; worse models do not count.
BASE_RATE_LOSSES = {"ne": 1.0, "auc": 0.5}


def publish_front(run_id: str, result: TuneResult, directory: Path) -> None:
    """Log front and all trials to a run in MLflow, and show the front in Prefect if a flow runs.

    Args:
        run_id: Parent run in MLflow.
        result: Result of the search.
        directory: Folder of the search, where the files are written, too.

    Raises:
        TrackingError: The store fails.
        CheckpointError: The files cannot be written, for instance because the disk is full.
    """
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / FRONT, json.dumps(front_numbers(result), indent=1))
    write_text(directory / TABLE, _table(all_rows(result)))
    log_files(run_id, [directory / FRONT, directory / TABLE], "search")
    _show_in_prefect(result)


def front_numbers(result: TuneResult) -> dict[str, Any]:
    """Return the Pareto front, its hypervolume, and the reference point: loss of the base rate and highest cost."""
    name = result.front_cost
    points = [
        (setting.loss, setting.costs[name])
        for setting in result.settings
        if setting.is_feasible and name in setting.costs
    ]
    reference = (
        BASE_RATE_LOSSES.get(result.select_by, max(setting.loss for setting in result.settings)),
        max((setting.costs[name] for setting in result.settings if name in setting.costs), default=0.0),
    )
    return {
        "cost": name,
        "front": front_rows(result),
        "hypervolume": hypervolume(points, reference),
        "reference": {f"validation_{result.select_by}": figure_of(reference[0], result.select_by), name: reference[1]},
    }


def front_markdown(result: TuneResult) -> str:
    """Return the front as a Markdown table, with a summary of the search."""
    rows = front_rows(result)
    first = result.best
    used = "" if result.seconds is None else f" in {result.seconds / 60:.1f} minutes"
    used += "" if result.joules is None else f" and {result.joules:,.0f} J"
    ended = f"\n\n{result.stopped_because}" if result.stopped_because else ""
    lines = [
        "# Front of the search",
        "",
        f"{len(result.settings)} trials with a result by {result.method}{used}; trial {first.trial_number} ranks "
        f"first, with {result.best_quality} on the validation part.{ended}",
        "",
    ]
    if not rows:
        return "\n".join([*lines, "No trial within the limits ran long enough to measure its costs."])
    titles = list(rows[0])
    lines += [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    lines += [f"| {' | '.join(map(_cell, row.values()))} |" for row in rows]
    cost = next(axis.title for axis in AXES if axis.name == result.front_cost)
    return "\n".join(
        [
            *lines,
            "",
            f"No trial within the limits is better than one of these in both {result.figure} and {cost}.",
        ]
    )


def _cell(value: Any) -> str:
    return "" if value is None else plain(value)


def _show_in_prefect(result: TuneResult) -> None:
    from prefect.artifacts import create_markdown_artifact
    from prefect.runtime import flow_run

    if flow_run.id is not None:
        figure = "The report of the run shows all trials in a figure."
        create_markdown_artifact(narrow_tables(front_markdown(result)), key=KEY, description=figure)


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()
