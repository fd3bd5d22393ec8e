"""One log and seed, trained by the product's own flow; what it has left stays in a folder, for others to look at."""

import argparse
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from benchmarks.quality.files import LOGS, write_files
from benchmarks.quality.row import recipe
from shunter.engine.checkpoint.checked_files import read_json

if TYPE_CHECKING:
    from shunter.engine.data.dataset import Dataset
    from shunter.engine.trained_model import TrainedModel
    from shunter.hardware.types import Placement

WORK = Path.home() / ".cache" / "shunter" / "ensembles"
SUMMARY = "summary.json"  # written last
CYCLES = "cycles"  # name of the training along cosines
QUICK_EPOCHS = 3


@dataclass(frozen=True)
class Trainings:
    """What a run has left.

    Attributes:
        dataset: What it was trained on.
        placement: Where.
        models: The training by the recipe, the one along cosines, and its snapshots.
    """

    dataset: "Dataset"
    placement: "Placement"
    models: "list[TrainedModel]"

    @property
    def single(self) -> "TrainedModel":
        """The training by the recipe."""
        return next(one for one in self.models if one.name not in (CYCLES,) and not one.name.startswith("snapshot-"))

    @property
    def cycles(self) -> "TrainedModel":
        """The training along cosines."""
        return next(one for one in self.models if one.name == CYCLES)

    @property
    def last_snapshot(self) -> "TrainedModel":
        """The last of its snapshots; the training itself where it was too short for two."""
        snapshots = [one for one in self.models if one.name.startswith("snapshot-")]
        return max(snapshots, key=lambda one: one.best_epoch, default=self.cycles)


def folder_of(work: Path, data: str, model: str, seed: int) -> Path:
    """Where the trainings of a log and seed lie."""
    return work / f"{data}-{model}-{seed}"


def train(data: str, model: str, seed: int, folder: Path, *, is_quick: bool) -> None:
    """Run `shunter train --ensemble-of snapshots --ensemble-size 3` on a recipe, in a home of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["SHUNTER_HOME"] = str(folder / "home")
    files = write_files(LOGS[data], folder, quick=is_quick)
    from shunter.flows.command.environment import prepare_environment
    from shunter.flows.command.start import start
    from shunter.requests import TrainRequest
    from shunter.requests.job_file import read_job

    asked = {"ensemble_of": "snapshots", "ensemble_size": 3, "seed": seed, "promote": "always", "baselines": "none"}
    given = {**files, **asked, **({"max_epochs": QUICK_EPOCHS} if is_quick else {})}
    with kept_runs():
        prepare_environment(debug=False)
        summary = start("shunter.flows.train:train", read_job(recipe(data, model), TrainRequest, given))
    (folder / SUMMARY).write_text(summary.model_dump_json())


def read_trainings(folder: Path) -> Trainings:
    """What `train` has left in a folder."""
    from shunter.engine.data.dataset import Dataset
    from shunter.engine.trained_model import TrainedModel, snapshots_of
    from shunter.hardware.types import Placement
    from shunter.tasks.run_state import DATA

    (state,) = (path for path in (folder / "home" / "runs").iterdir() if path.is_dir())
    members = [
        TrainedModel.model_validate({**read_json(path), "directory": path.parent})
        for path in sorted(state.glob("members/*/trained.json"))
    ]
    models = [one for member in members for one in (member, *(snapshots_of(member) if member.name == CYCLES else ()))]
    (cached,) = (folder / "home").glob(f"**/{json.loads((state / DATA).read_text())['folder']}/dataset.json")
    decision = json.loads((folder / SUMMARY).read_text())["decision"]
    return Trainings(Dataset.load(cached.parent), Placement.model_validate(decision["placement"]), models)


@contextmanager
def kept_runs() -> Iterator[None]:
    """Leave the folder of a finished run where it is, with the models that the result does not hold."""
    with patch("shunter.tasks.run_state.StateFolder.finish", lambda _: None):
        yield


def main() -> None:
    """Train one log and seed."""
    parser = argparse.ArgumentParser()
    for name, kind in {"data": str, "model": str, "seed": int, "folder": Path}.items():
        parser.add_argument(name, type=kind)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    train(given.data, given.model, given.seed, given.folder, is_quick=given.quick)
    print(json.dumps({"folder": str(given.folder)}))


if __name__ == "__main__":
    main()
