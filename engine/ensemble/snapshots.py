"""Snapshots of a finished training run as separate models."""

from collections.abc import Iterator

from shunter.engine.loop.snapshots import snapshot_folder
from shunter.engine.trained_model import TrainedModel


def snapshots_of(trained: TrainedModel) -> Iterator[TrainedModel]:
    """Yield the snapshots of a finished training run in order, each as a separate model.

    A snapshot's cost is that of the training run up to it: time and samples as measured, energy in proportion to the
    time.
    """
    for report in trained.history:
        folder = snapshot_folder(trained.directory, report.epoch)
        if not folder.exists():
            continue
        share = report.train_seconds / trained.train_seconds if trained.train_seconds else 1.0
        energy = trained.energy
        part = {
            "joules": None if energy.joules is None else energy.joules * share,
            "seconds": energy.seconds * share,
            "source": f"{energy.source}; in proportion to the time",
        }
        yield trained.model_copy(
            update={
                "directory": folder,
                "name": f"snapshot-{report.epoch}",
                "validation": report.validation,
                "history": tuple(one for one in trained.history if one.epoch <= report.epoch),
                "best_epoch": report.epoch,
                "samples_seen": report.samples_seen,
                "train_seconds": report.train_seconds,
                "wait_seconds": report.wait_seconds,
                "compute_seconds": report.compute_seconds,
                "warm_up_steps": report.warm_up_steps,
                "warm_up_seconds": report.warm_up_seconds,
                "energy": energy.model_copy(update=part),
            }
        )
