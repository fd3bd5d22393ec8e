"""Loggers that write files for TensorBoard, and offline runs of Weights & Biases for `wandb sync`."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shunter.tracking.entries import Point

if TYPE_CHECKING:
    import wandb
    from tensorboardX import SummaryWriter

STEP = "step"  # name of the x axis of all curves of Weights & Biases, which is the epoch, as in MLflow


class TensorBoardLogger:
    """Logger that writes a folder of event files for each run.

    Args:
        folder: Folder for `tensorboard --logdir`.
        tree: Name of the tree of runs, used as the parent folder of the runs' folders.
    """

    def __init__(self, folder: Path, tree: str) -> None:
        self._folder, self._tree = folder / tree, tree
        self._writers: dict[str, SummaryWriter] = {}

    def begin(self, run_id: str, name: str, kind: str) -> None:
        """Open the event file of a run; a repeated trial gets a new folder."""
        from tensorboardX import SummaryWriter

        inside = "all" if kind == "parent" else f"{name}-{run_id[:8]}"
        self._writers[run_id] = SummaryWriter(str(self._folder / inside))

    def log_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Write parameters as a text."""
        rows = "\n".join(f"| {name} | {value} |" for name, value in params.items())
        self._writers[run_id].add_text("parameters", f"| parameter | value |\n|---|---|\n{rows}")

    def log_metrics(self, run_id: str, points: Sequence[Point]) -> None:
        """Write points of metrics as scalars."""
        for name, value, milliseconds, step in points:
            self._writers[run_id].add_scalar(name, value, step, walltime=milliseconds / 1000)

    def end(self, run_id: str) -> None:
        """Close the event file of a run."""
        self._writers.pop(run_id).close()


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
