"""Trainings of one click log by points of its space, each made once and remembered in a file."""

import hashlib
import json
from pathlib import Path

from benchmarks.search import data as click_logs
from shunter.engine.config import Execution, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.resolution import too_few_to_choose
from shunter.engine.job import TrainingJob
from shunter.engine.loop.trainer import train
from shunter.errors import TrainingError
from shunter.search.protocol import Outcome, Parameters
from shunter.search.space.settings import SearchSpace

# Rows of a training: small enough for about a second, large enough to tell good settings from bad ones.
ROWS = {"train": 10_000, "validation": 4_000}
FAMILIES = ("dlrm", "dnn", "deepfm", "dcnv2")  # of `auto`, those of which a training of this size takes about a second
EXECUTION = Execution(threads=1, batch_size=512)
EPOCHS = 3


class Trainings:
    """Trainings of one data set."""

    def __init__(self, name: str, folder: Path) -> None:
        """Read what was trained already."""
        self.dataset = click_logs.load(name, folder / "data", ROWS)
        self._file = folder / f"trainings.{name}.jsonl"
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        self._known = {line["key"]: line["ne"] for line in map(json.loads, filter(_is_whole, lines))}

    @property
    def space(self) -> SearchSpace:
        """Of `auto`, with `FAMILIES`."""
        space = SearchSpace.for_dataset(self.dataset, "dcnv2")  # the one of them that has options
        return space.model_copy(update={"families": FAMILIES})

    @property
    def too_few(self) -> str | None:
        """Why nothing can be chosen by the validation part, as the product says it; None where it holds enough."""
        validation = self.dataset.splits["validation"]
        return too_few_to_choose(validation.positives, validation.rows)

    def outcome(self, point: Parameters, seed: int) -> Outcome:
        """Of one point by a training with one seed."""
        key = _key(self.dataset, point, seed)
        if key not in self._known:
            self._known[key] = self._train(point, seed)
            with self._file.open("a") as file:
                file.write(json.dumps({"key": key, "ne": self._known[key], "seed": seed, "point": point}) + "\n")
        ne = self._known[key]
        return Outcome(state="failed") if ne is None else Outcome(state="complete", validation_ne=ne)

    def _train(self, point: Parameters, seed: int) -> float | None:
        spec, hyperparameters = self.space.build(point)
        schedule = Schedule(max_epochs=EPOCHS, patience=EPOCHS, seed=seed)
        try:
            return train(TrainingJob(self.dataset, spec, hyperparameters, EXECUTION, schedule)).validation.ne
        except TrainingError:
            return None


def _is_whole(line: str) -> bool:
    return line.endswith("}")


def _key(dataset: Dataset, point: Parameters, seed: int) -> str:
    text = json.dumps([dataset.fingerprint, point, seed, EPOCHS, EXECUTION.batch_size], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
