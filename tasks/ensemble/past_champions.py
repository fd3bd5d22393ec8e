"""Members from earlier champions of a registered name that were trained on the same data in the same split.

A champion of other data may have learned rows that are in the test part of this run, whose quality would then be
overestimated. So the fingerprint of the data (rows, schema and split) must be equal.
"""

from dataclasses import dataclass
from pathlib import Path

from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.metrics import Metrics
from shunter.engine.stopping import StopKind, StopReason
from shunter.engine.trained_model import TrainedModel
from shunter.errors import CheckpointError, MissingExtensionError, TrackingError
from shunter.hardware.types import EnergyReading, Placement
from shunter.models.altered_layers import keeps_weights
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model
from shunter.tracking.registry.versions import Version, champions_of, download, fingerprint_of

MOST_VERSIONS = 5


@dataclass(frozen=True)
class PastChampions:
    """Members of past champions.

    Attributes:
        members: Members of the champions, each in a folder of its own; a member of several champions is taken from the
            newest.
        left_out: Versions that were trained on other data, or whose files are not available.
    """

    members: list[TrainedModel]
    left_out: list[int]

    @property
    def sentence(self) -> str:
        """Return a sentence on the former champions that join the ensemble."""
        versions = sorted({member.name.split("-")[1] for member in self.members}, key=int)
        taken = f"Members of past champions: {len(self.members)}" + (
            f", of version {', '.join(versions)}." if versions else ", because none was trained on this data and split."
        )
        if not self.left_out:
            return taken
        return f"{taken} Version {', '.join(map(str, self.left_out))} was trained on other data, or is not available."


def past_champions(
    name: str, dataset: Dataset, placement: Placement, execution: Execution, folder: Path
) -> PastChampions:
    """Fetch the members of the current and the earlier champions of a name, the newest first.

    Args:
        name: Name of the registered model.
        dataset: Data on which the champions must have been trained.
        placement: Placement of the scoring.
        execution: Execution of the scoring.
        folder: Folder for the fetched models.

    Raises:
        DataError: An array cannot be read.
        TrackingError: The store cannot be read.
    """
    members: list[TrainedModel] = []
    left_out: list[int] = []
    known: set[str] = set()
    for version in champions_of(name, MOST_VERSIONS):
        models = _models_of(version, dataset, folder, is_mapped=execution.maps_tables)
        if not models:
            left_out.append(version.version)
        for number, model in enumerate(models):
            directory = folder / f"{version.version}-{number}"
            save_model(model, directory)
            checksum = read_json(directory / "model.json")["sha256"]
            if checksum not in known:
                known.add(checksum)
                validation = evaluate(model.to(execution.device), dataset, "validation", execution).metrics
                members.append(
                    _trained(directory, f"{version.version}-{number}", model, dataset, placement, validation)
                )
    return PastChampions(members, left_out)


def _models_of(version: Version, dataset: Dataset, folder: Path, *, is_mapped: bool) -> tuple[Model, ...]:
    """Return the members of a registered version; empty if it was trained on other data or is not available."""
    if fingerprint_of(version) != dataset.fingerprint:
        return ()
    try:
        model = load_model(download(version, folder / f"fetched-{version.version}").model, is_mapped=is_mapped)
    except (CheckpointError, MissingExtensionError, TrackingError):
        return ()
    if not keeps_weights(model) or model.features != dataset.features:
        return ()
    return model.models if isinstance(model, Ensemble) else (model,)


def _trained(  # noqa: PLR0917
    directory: Path, number: str, model: Model, dataset: Dataset, placement: Placement, validation: Metrics
) -> TrainedModel:
    """Return a member of an earlier champion as a training result without time and energy."""
    return TrainedModel(
        directory=directory,
        name=f"champion-{number}",
        data_fingerprint=dataset.fingerprint,
        spec=model.spec,
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
        stop_reason=StopReason(StopKind.EARLIER, details={"version": number.partition("-")[0]}),
        run_id=None,
    )
