"""Display of a search in the flow run and in MLflow."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from shunter.database import copy_database
from shunter.engine.stopping import StopKind, StopReason
from shunter.search.noise import NOISE, TOO_FEW, Noise
from shunter.search.result import TuneResult
from shunter.search.study.address import FILE
from shunter.tasks.flow_bar import FlowBar
from shunter.tasks.progress_line import progress_line
from shunter.tasks.run_log import log_sentence
from shunter.tracking.convention import search_stop_tags
from shunter.tracking.reports import log_files
from shunter.tracking.runs import open_run

if TYPE_CHECKING:
    from shunter.search.study.loop import Progress

KEY = "tune"


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
        words = f"{progress.done}{_of(progress.trials)} trials{best}{running}"
        line.move(progress.share, words)
        bar.move(progress.share, f"{words}.")

    with progress_line("tune") as line:
        yield on_trial


def _of(trials: int | None) -> str:
    return "" if trials is None else f" of {trials}"


def publish_search(run_id: str, result: TuneResult, directory: Path) -> None:
    """Log a search to its run: metrics, the front, and a copy of the study for `optuna-dashboard`.

    Args:
        run_id: Parent run in MLflow.
        result: Result of the search.
        directory: Folder of the search; a study in a user's own storage is not copied.

    Raises:
        TrackingError: The store fails.
    """
    from shunter.tasks.tune.front_report import publish_front

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
