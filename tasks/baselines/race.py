"""Two trainings of one model that differ in a setting: the second ends as soon as it is behind the first."""

import json
from pathlib import Path

from shunter.engine.checkpoint.storage import read_json, write_text
from shunter.engine.config import SelectBy
from shunter.engine.results import EpochReport
from shunter.errors import CheckpointError


class Race:
    """Compares validations of a second training with those of a first after as many samples.

    Those of the first are kept in a file, so that an attempt after an interruption decides as an undisturbed one.

    Args:
        path: The file.
        select_by: Figure that is compared.
        least_samples: Samples before which nothing is compared.
    """

    def __init__(self, path: Path, select_by: SelectBy, least_samples: int) -> None:
        self.lost_because: str | None = None
        self._path, self._least_samples = path, least_samples
        self._select_by: SelectBy = select_by
        self._losses: dict[str, float] = self._kept()

    def lead(self, report: EpochReport) -> None:
        """Note a validation of the first."""
        self._losses[str(report.samples_seen)] = report.validation.loss_by(self._select_by)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self._path, json.dumps(self._losses))

    def follow(self, report: EpochReport) -> None:
        """Compare a validation of the second; once it is behind, `lost_because` says so."""
        first = self._losses.get(str(report.samples_seen))
        second = report.validation.loss_by(self._select_by)
        if first is not None and report.samples_seen >= self._least_samples and second > first:
            self.lost_because = f"another learning rate was ahead after {report.samples_seen:,} samples"

    def _kept(self) -> dict[str, float]:
        try:
            return {samples: float(loss) for samples, loss in read_json(self._path).items()}
        except (CheckpointError, TypeError, ValueError):
            return {}
