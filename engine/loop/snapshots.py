"""Snapshots of the weights at the ends of the learning rate cycles of one training run, as members of an ensemble.

The members cost no training time beyond the run. Huang et al., "Snapshot Ensembles: Train 1, Get M for Free", ICLR
2017.
"""

import shutil
from pathlib import Path

FOLDER = "snapshots"


def snapshot_folder(directory: Path, epoch: int) -> Path:
    """Return the folder of the weights after `epoch` epochs, below the checkpoint folder `directory`."""
    return directory / FOLDER / str(epoch)


def take_snapshots(checkpoint: Path, directory: Path) -> None:
    """Move the snapshots from a checkpoint folder, which is temporary, to the folder `directory` of the model."""
    if (checkpoint / FOLDER).exists():
        shutil.rmtree(directory / FOLDER, ignore_errors=True)  # left by an attempt that was killed during the move
        shutil.move(checkpoint / FOLDER, directory / FOLDER)
