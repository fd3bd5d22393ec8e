"""Logger that writes event files for TensorBoard."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shunter.tracking.entries import Point

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter


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
