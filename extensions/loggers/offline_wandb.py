"""Logger that writes offline runs of Weights & Biases, which the user can upload by `wandb sync`."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shunter.tracking.entries import Point

if TYPE_CHECKING:
    import wandb

STEP = "step"  # name of the x axis of all curves, which is the epoch, as in MLflow


class WandbLogger:
    """Logger that writes an offline run of Weights & Biases for each run.

    Nothing is sent: the runs are offline regardless of WANDB_MODE, and wandb's error reports are off.

    Args:
        folder: Folder in which wandb makes its folder `wandb`.
        tree: Name of the tree of runs, used as the group in Weights & Biases.
    """

    def __init__(self, folder: Path, tree: str) -> None:
        self._folder, self._tree = folder, tree
        self._runs: dict[str, wandb.Run] = {}

    def begin(self, run_id: str, name: str, kind: str) -> None:
        """Begin an offline run."""
        os.environ["WANDB_ERROR_REPORTING"] = "false"  # wandb reads the variable when it is imported
        import wandb

        self._folder.mkdir(parents=True, exist_ok=True)
        settings = wandb.Settings(
            console="off",
            disable_git=True,
            disable_code=True,
            silent=True,
            x_disable_stats=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
        )
        run = wandb.init(
            project="shunter",
            group=self._tree,
            name=name,
            job_type=kind,
            mode="offline",
            dir=self._folder,
            reinit="create_new",
            settings=settings,
        )
        run.define_metric("*", step_metric=STEP)
        self._runs[run_id] = run

    def log_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Write parameters to the configuration of a run."""
        self._runs[run_id].config.update(dict(params), allow_val_change=True)

    def log_metrics(self, run_id: str, points: Sequence[Point]) -> None:
        """Write points of metrics, all metrics of a step together."""
        by_step: dict[int, dict[str, float]] = {}
        for name, value, _, step in points:
            by_step.setdefault(step, {})[name] = value
        for step, values in by_step.items():
            self._runs[run_id].log({**values, STEP: step})

    def end(self, run_id: str) -> None:
        """Finish a run."""
        self._runs.pop(run_id).finish()
