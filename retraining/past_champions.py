"""Members that were trained before: those of the champions of a name, where they learned the same data in one split.

A champion of other data may have learned rows that are the test part here; no figure of the result would then be of
rows that nothing has seen. So only those count whose data have the same fingerprint, rows, schema and split alike.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.checkpoint.storage import load_model, save_model
from engine.config import Execution, Hyperparameters, Schedule
from engine.data.dataset import Dataset
from engine.loop.evaluation import evaluate
from engine.trained_model import TrainedModel
from hardware.types import EnergyReading, Placement
from models.compression.scheme import is_compressed
from models.ensemble import Ensemble
from shunter.errors import CheckpointError, TrackingError
from tracking.registry.versions import Version, champions_of, download, fingerprint_of

MOST_VERSIONS = 5


@dataclass(frozen=True)
class PastChampions:
    """What was found.

    Attributes:
        members: Their members, each in a folder of its own.
        left_out: Versions that learned other data, or whose files are not to be had.
    """

    members: list[TrainedModel]
    left_out: list[int]

    @property
    def words(self) -> str:
        """In one sentence."""
        versions = sorted({member.name.split("-")[1] for member in self.members}, key=int)
        taken = f"Members of past champions: {len(self.members)}" + (
            f", of version {', '.join(versions)}." if versions else ", for none learned these data in this split."
        )
        if not self.left_out:
            return taken
        return f"{taken} Version {', '.join(map(str, self.left_out))} learned others, or is not to be had."


def past_champions(
    name: str, dataset: Dataset, placement: Placement, execution: Execution, folder: Path
) -> PastChampions:
    """Fetch the champion of a name and those before it, the newest first.

    Args:
        name: Name of the registered model.
        dataset: Data that they must have learned.
        placement: Where they are scored.
        execution: How.
        folder: Folder for them.

    Raises:
        DataError: An array cannot be read.
        TrackingError: The store cannot be read.
    """
    members: list[TrainedModel] = []
    left_out: list[int] = []
    for version in champions_of(name, MOST_VERSIONS):
        found = []
        if fingerprint_of(version) == dataset.fingerprint:
            found = list(_members(version, dataset, placement, execution, folder))
        members += found
        if not found:
            left_out.append(version.version)
    return PastChampions(members, left_out)


def _members(
    version: Version, dataset: Dataset, placement: Placement, execution: Execution, folder: Path
) -> Iterator[TrainedModel]:
    try:
        model = load_model(download(version, folder / f"fetched-{version.version}").model)
    except (CheckpointError, TrackingError):
        return
    if is_compressed(model) or model.features != dataset.features:
        return
    for number, member in enumerate(model.models if isinstance(model, Ensemble) else (model,)):
        directory = folder / f"{version.version}-{number}"
        save_model(member, directory)
        validation = evaluate(member.to(execution.device), dataset, "validation", execution).metrics
        yield TrainedModel(
            directory=directory,
            name=f"champion-{version.version}-{number}",
            data_fingerprint=dataset.fingerprint,
            spec=member.spec,
            hyperparameters=Hyperparameters(),  # it is not trained again
            placement=placement,
            schedule=Schedule(max_epochs=1),
            validation=validation,
            history=(),
            best_epoch=0,
            samples_seen=0,
            train_seconds=0.0,
            wait_seconds=0.0,
            compute_seconds=0.0,
            samples_per_second=0.0,
            peak_memory_bytes=0,
            energy=EnergyReading(
                joules=0.0, seconds=0.0, mean_watts=None, method="estimated", source="it was trained before"
            ),
            stopped_because=f"trained before, as version {version.version}",
            run_id=None,
        )
