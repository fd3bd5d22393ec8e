"""One log and seed: what two runs of the product's own flow train, and what each way to use it predicts."""

import argparse
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np

from benchmarks.quality.files import LOGS, write_files
from benchmarks.quality.row import recipe

if TYPE_CHECKING:
    from engine.config import Execution
    from engine.data.dataset import Dataset
    from engine.trained_model import TrainedModel
    from flows.train import TrainSummary

WAYS: dict[str, dict[str, Any]] = {
    "snapshots": {"ensemble_of": "snapshots", "ensemble_size": 3},
    "members": {"ensemble_of": "members", "ensemble_size": 2},
}
CYCLES = "cycles"  # name of the training along cosines


@dataclass(frozen=True)
class Trainings:
    """What a run has left.

    Attributes:
        summary: What the flow returns.
        dataset: What it was trained on.
        models: All that were trained, their snapshots among them.
        execution: How they are scored.
    """

    summary: "TrainSummary"
    dataset: "Dataset"
    models: "Sequence[TrainedModel]"
    execution: "Execution"

    def scored(self, part: str) -> tuple[np.ndarray, np.ndarray]:
        """Labels `[rows]` and log odds `[models, rows]` of `validation` or `test`."""
        from engine.checkpoint.storage import load_model
        from engine.loop.evaluation import evaluate

        found = [evaluate(load_model(one.directory), self.dataset, part, self.execution) for one in self.models]  # pyright: ignore[reportArgumentType]
        return found[0].labels, np.stack([one.logits for one in found])

    def cost(self) -> dict[str, float]:
        """Samples and seconds of the trainings; snapshots are parts of theirs."""
        whole = [one for one in self.models if not one.name.startswith("snapshot-")]
        return {
            "samples": float(sum(one.samples_seen for one in whole)),
            "seconds": sum(one.train_seconds for one in whole),
        }


def run(data: str, model: str, seed: int, *, is_quick: bool) -> dict[str, Any]:
    """Train both ways in homes of their own, and give the quality on the test part of each way to use what came of it.

    Args:
        data: Name of the log.
        model: Family, by its recipe.
        seed: Of the search, the weights and the order.
        is_quick: Whether on few rows and for few epochs.
    """
    from shunter.settings import Settings

    found: dict[str, Any] = {"data": data, "model": model, "seed": seed}
    with TemporaryDirectory() as folder, kept_runs():
        files = write_files(LOGS[data], Path(folder), quick=is_quick)
        profiles: Path | None = None
        for way, options in WAYS.items():
            os.environ["SHUNTER_HOME"] = f"{folder}/{way}"
            if profiles is not None:  # the machine is the same, and nothing else is to pass on
                shutil.copytree(profiles, Settings().profile_directory)
            trained = _train(recipe(data, model), {**files, **options, "seed": seed}, is_quick=is_quick)
            found[way] = _figures(trained, seed)
            profiles = Settings().profile_directory
    return found


@contextmanager
def kept_runs() -> Iterator[None]:
    """Leave the folder of a finished run where it is, with the models that the result does not hold."""
    with patch("tasks.run_state.StateFolder.finish", lambda _: None):
        yield


def _train(job: Path, options: dict[str, Any], *, is_quick: bool) -> Trainings:
    from engine.data.dataset import Dataset
    from engine.execution import execution_of
    from engine.trained_model import TrainedModel
    from flows.command.environment import prepare_environment
    from flows.command.start import start
    from shunter.requests import TrainRequest, read_job
    from shunter.settings import Settings
    from tasks.run_state import DATA

    given = {**options, "promote": "always", "baselines": "none", **({"max_epochs": 3} if is_quick else {})}
    request = read_job(job, TrainRequest, given)
    prepare_environment(debug=False)
    summary = start("flows.train:train", request)
    (state,) = (path for path in Settings().runs_directory.iterdir() if path.is_dir())
    members = [
        TrainedModel.model_validate({**json.loads(path.read_text()), "directory": path.parent})
        for path in sorted(state.glob("members/*/trained.json"))
    ]
    return Trainings(
        summary,
        Dataset.load(Settings().cache_directory / (state / DATA).read_text()),
        list(_with_snapshots(members)),
        execution_of(summary.decision.placement),
    )


def _with_snapshots(members: "Sequence[TrainedModel]") -> "Iterator[TrainedModel]":
    from engine.ensemble.snapshots import snapshots_of

    for member in members:
        yield member
        if member.name == CYCLES:
            yield from snapshots_of(member)


def _figures(trained: Trainings, seed: int) -> dict[str, Any]:
    from engine.ensemble.result import EnsembleResult

    labels, logits = trained.scored("validation")
    test_labels, test_logits = trained.scored("test")
    names = [one.name for one in trained.models]
    result = trained.summary.result
    assert isinstance(result, EnsembleResult), "a model of clicks was trained"

    def alone(chosen: Sequence[int]) -> dict[str, float]:
        """The best of some models as the product would register it alone: calibrated where that pays."""
        from engine.ensemble.verdict import judge
        from engine.metrics import compute_metrics

        verdict = judge(labels, logits[list(chosen)], seed, most=1)
        metrics = compute_metrics(test_labels, verdict.combine(test_logits[list(chosen)]))
        return {"ne": metrics.ne, "auc": metrics.auc}

    last = max(
        ((one.best_epoch, place) for place, one in enumerate(trained.models) if "snapshot-" in one.name), default=None
    )
    return {
        "ensemble": {"ne": result.test.ne, "auc": result.test.auc, "kept": result.kept, "reason": result.reason},
        "weights": {one.name: one.weight for one in result.members},
        "best_single": alone(range(len(names))),
        **({"last_snapshot": alone([last[1]])} if last else {}),
        "cost": trained.cost(),
        "models": {
            one.name: {"epochs": len(one.history), "samples": one.samples_seen, "validation_ne": one.validation.ne}
            for one in trained.models
        },
    }


def main() -> None:
    """Run one row and print its figures as the last line."""
    parser = argparse.ArgumentParser()
    for name, kind in {"data": str, "model": str, "seed": int}.items():
        parser.add_argument(name, type=kind)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    print(json.dumps(run(given.data, given.model, given.seed, is_quick=given.quick)))


if __name__ == "__main__":
    main()
