"""Logging of a parent run's configuration, files and training curves."""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, TypeAdapter

from shunter.engine.config import SelectBy
from shunter.engine.results import EpochReport
from shunter.requests import Request
from shunter.requests.job_file import JOB_FILE, job_text
from shunter.tracking.runs import open_run
from shunter.tracking.store import tracking_errors

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


TRAINING_CURVE = "training_curve.html"


def log_config(run_id: str, name: str, config: BaseModel | Sequence[BaseModel] | Mapping[str, Any]) -> None:
    """Log a configuration, or any other JSON value, as the artifact `config/<name>.json`.

    Raises:
        TrackingError: the store fails.
    """
    log_text(run_id, f"config/{name}.json", TypeAdapter(Any).dump_json(config, indent=1).decode())


def log_request(run_id: str, request: Request, command: str) -> None:
    """Log the request, as JSON for programs and as the job file that `shunter COMMAND --config` accepts.

    Raises:
        TrackingError: the store fails.
    """
    log_config(run_id, "request", request.flat())
    log_text(run_id, JOB_FILE, job_text(request, command))


def log_text(run_id: str, name: str, text: str) -> None:
    """Log a text as an artifact.

    Raises:
        TrackingError: the store fails.
    """
    run = open_run(run_id)
    with tracking_errors():
        run.client.log_text(run_id, text, name)


def log_files(run_id: str, paths: Iterable[Path], folder: str | None = None) -> None:
    """Log files as artifacts, in a folder of the run or at its root.

    Raises:
        TrackingError: the store fails.
    """
    run = open_run(run_id)
    with tracking_errors():
        for path in paths:
            run.client.log_artifact(run_id, str(path), folder)


def log_training_curve(
    parent_run_id: str, histories: Mapping[str, Sequence[EpochReport]], select_by: SelectBy = "ne"
) -> None:
    """Log one figure with the curves of several training jobs, as the artifact `training_curve.html`.

    Args:
        parent_run_id: Run that gets the artifact.
        histories: Epoch reports of each training run, by its name in the legend.
        select_by: Selection metric, which determines the best epoch.

    Raises:
        TrackingError: the store fails.
    """
    run = open_run(parent_run_id)
    with tempfile.TemporaryDirectory() as folder, tracking_errors():
        path = Path(folder) / TRAINING_CURVE
        # The file includes the plotting library, so that the figure is shown without a network too.
        training_curve(histories, select_by).write_html(path, include_plotlyjs=True)
        run.client.log_artifact(parent_run_id, str(path))


def training_curve(histories: Mapping[str, Sequence[EpochReport]], select_by: SelectBy = "ne") -> "Figure":
    """Plot validation NE and log loss, or relative and mean loss of a numeric label, over epochs; mark best epochs."""
    from plotly.colors import qualitative
    from plotly.subplots import make_subplots

    is_number = any(report.validation.rmse is not None for history in histories.values() for report in history)
    panels = ("Relative loss on validation", "Loss") if is_number else ("Normalised entropy on validation", "Log loss")
    figure = make_subplots(rows=1, cols=2, subplot_titles=panels, horizontal_spacing=0.1)
    for position, (name, history) in enumerate(histories.items()):
        if history:
            _add_training(figure, name, history, qualitative.D3[position % len(qualitative.D3)], select_by)
    longest = max((len(history) for history in histories.values()), default=0)
    figure.update_xaxes(title_text="epoch", rangemode="tozero", tickformat="d", dtick=1 + longest // 12)
    relative, mean = "NE (below 1 beats the base rate)", "log loss (nats per sample)"
    if is_number:
        relative, mean = "relative loss (below 1 beats the best constant)", "mean loss"
    figure.update_yaxes(title_text=relative, col=1)
    figure.update_yaxes(title_text=mean, col=2)
    figure.update_layout(title_text="Training curves (star: best epoch)", template="plotly_white", height=520)
    return figure


def _add_training(
    figure: "Figure", name: str, history: Sequence[EpochReport], colour: str, select_by: SelectBy
) -> None:
    """Add three lines: NE or relative loss on the left axis, two losses on the right; one legend entry for all."""
    entropy = [report.validation.ne for report in history]
    relative, loss = ("NE", "log loss") if history[0].validation.rmse is None else ("relative loss", "loss")
    losses = [report.validation.loss_by(select_by) for report in history]
    is_best = [loss == min(losses) for loss in losses]
    stars = {
        "size": [12 if best else 6 for best in is_best],
        "symbol": ["star" if best else "circle" for best in is_best],
    }
    lines = (
        (1, f"{name}: {relative}", entropy, "solid", stars),
        (2, f"{name}: {loss}, validation", [report.validation.logloss for report in history], "solid", {"size": 6}),
        (2, f"{name}: {loss}, training", [report.train_logloss for report in history], "dot", {"size": 6}),
    )
    for panel, label, values, dash, marker in lines:
        figure.add_scatter(
            x=[report.epoch for report in history],
            y=values,
            name=label,
            mode="lines+markers",
            line={"color": colour, "dash": dash},
            marker=marker,
            legendgroup=name,
            row=1,
            col=panel,
        )
