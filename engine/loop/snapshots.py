"""Weights at the ends of the cycles of one training: members of an ensemble that cost nothing beside it.

Huang et al., "Snapshot Ensembles: Train 1, Get M for Free", ICLR 2017.
"""

import shutil
from pathlib import Path

FOLDER = "snapshots"


def snapshot_folder(directory: Path, epoch: int) -> Path:
    """Where the weights after so many epochs lie, below the folder of a training's checkpoint."""
    return directory / FOLDER / str(epoch)


def take_snapshots(checkpoint: Path, directory: Path) -> None:
    """Move the snapshots from the folder of a checkpoint, which goes with the training, to that of the model."""
    if (checkpoint / FOLDER).exists():
        shutil.rmtree(directory / FOLDER, ignore_errors=True)  # of an attempt that was killed here
        shutil.move(checkpoint / FOLDER, directory / FOLDER)
