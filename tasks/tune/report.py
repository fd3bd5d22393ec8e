"""Display of a search in the flow run and in MLflow: its trials, and its Pareto front, which the report page draws."""

import contextlib
import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from shunter.database import copy_database
from shunter.engine.checkpoint.checked_files import write_text
from shunter.engine.metrics import figure_of
from shunter.engine.stopping import StopKind, StopReason
from shunter.markdown import plain
from shunter.pareto import hypervolume
from shunter.search.front import AXES, all_rows, front_rows
from shunter.search.noise import NOISE, TOO_FEW, Noise
from shunter.search.result import TuneResult
from shunter.search.study.address import FILE
from shunter.tasks.progress_line import FlowBar, progress_line
from shunter.tasks.run_log import log_sentence, show_markdown
from shunter.tracking.convention import search_stop_tags
from shunter.tracking.reports import log_files
from shunter.tracking.runs import open_run

if TYPE_CHECKING:
    from shunter.search.study.loop import Progress

KEY, FRONT_KEY = "tune", "search-front"
FRONT, TABLE = "front.json", "trials.csv"
# Losses (NE, and 1 - AUC) of a model that predicts the base rate; worse models do not count.
BASE_RATE_LOSSES = {"ne": 1.0, "auc": 0.5}


@contextlib.contextmanager
def trial_progress() -> Iterator["Callable[[Progress], None] | None"]:
    """Yield a function that shows trials and epochs, as a progress bar and as log lines; None outside of a flow."""
    from prefect.runtime import flow_run

    if flow_run.id is None:
        yield None
        return
    bar = FlowBar(KEY)
    bar.move(0.0, "Trials of the search.")

    def on_trial(progress: "Progress") -> None:
        if progress.last:
            log_sentence(progress.last)
        best = "" if progress.best is None else f", best on validation {progress.best}"
        running = f"; {progress.running}" if progress.running else ""
        of = "" if progress.trials is None else f" of {progress.trials}"
        words = f"{progress.done}{of} trials{best}{running}"
        line.move(progress.share, words)
        bar.move(progress.share, f"{words}.")

    with progress_line("tune") as line:
        yield on_trial


def publish_search(run_id: str, result: TuneResult, directory: Path) -> None:
    """Log a search to its run: metrics, the front, and a copy of the study for `optuna-dashboard`.

    Args:
        run_id: Parent run in MLflow.
        result: Result of the search.
        directory: Folder of the search; a study in a user's own storage is not copied.

    Raises:
        TrackingError: The store fails.
    """
    run = open_run(run_id)
    figures = {
        "search.complete_trials": result.complete_trials,
        "search.pruned_trials": result.pruned_trials,
        "search.failed_trials": result.failed_trials,
        "search.infeasible_trials": sum(not setting.is_feasible for setting in result.settings),
        f"search.best_{'relative_loss' if result.is_number else 'ne'}": result.best.validation_ne,
        "search.seconds": result.seconds,
        "search.joules": result.joules,
    }
    run.log_figures("search", {name: value for name, value in figures.items() if value is not None})
    run.set_tags(
        {
            "search.method": result.method,
            "search.front": " ".join(map(str, result.front)) or "none",
            **search_stop_tags(result.stop_reason or StopReason(StopKind.TRIALS)),
        }
    )
    if result.too_few_positives:
        run.set_tags({TOO_FEW: result.too_few_positives})
        log_sentence(result.too_few_positives)
    if (directory / FILE).exists():
        with TemporaryDirectory() as folder:
            copy = Path(folder) / FILE
            copy_database(directory / FILE, copy)
            log_files(run_id, [copy], "search")
    publish_front(run_id, result, directory)


def publish_noise(run_id: str, noise: Noise | None) -> None:
    """Log to the run how much the metric of the search varies between seeds; nothing if it is not known.

    Raises:
        TrackingError: The store fails.
    """
    if noise is not None:
        open_run(run_id).log_figures("noise", {NOISE: noise.deviation, f"{NOISE}_trainings": noise.trainings})


def publish_front(run_id: str, result: TuneResult, directory: Path) -> None:
    """Log front and all trials to a run in MLflow, and show the front in Prefect if a flow runs.

    Raises:
        TrackingError: The store fails.
        CheckpointError: The files cannot be written, for instance because the disk is full.
    """
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / FRONT, json.dumps(front_numbers(result), indent=1))
    rows, text = all_rows(result), io.StringIO(newline="")
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_text(directory / TABLE, text.getvalue())
    log_files(run_id, [directory / FRONT, directory / TABLE], "search")
    show_markdown(FRONT_KEY, front_markdown(result), "The report of the run shows all trials in a figure.")


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
    lines += [f"| {' | '.join('' if value is None else plain(value) for value in row.values())} |" for row in rows]
    cost = next(axis.title for axis in AXES if axis.name == result.front_cost)
    return "\n".join(
        [
            *lines,
            "",
            f"No trial within the limits is better than one of these in both {result.figure} and {cost}.",
        ]
    )
