"""One model that learns what the ensemble predicts: when it is trained, and that it competes like any other."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.job import TrainingJob
from shunter.engine.trained_model import TrainedModel
from shunter.hardware.types import Placement
from shunter.models.registry import model_spec
from shunter.requests import TrainRequest
from shunter.tasks.ensemble import EnsembleLimits, combine_members, distil
from shunter.tasks.ensemble import members as module
from shunter.tasks.train import train_model
from shunter.tracking.runs import start_run_tree
from tests.engine.synthetic import write_dataset

PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)


def job_of(dataset: Dataset, seed: int) -> Any:
    return TrainingJob(
        dataset,
        model_spec(embedding_dim=8, bottom_widths=(8,), top_widths=(32,)),
        Hyperparameters(dense_learning_rate=0.01, embedding_learning_rate=0.1),
        execution_of(PLACEMENT),
        Schedule(max_epochs=2, seed=seed),
    )


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=3_000, ids=400)


@pytest.fixture(scope="module")
def members(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> list[TrainedModel]:
    return [
        train_model(job_of(dataset, seed), PLACEMENT, tmp_path_factory.mktemp(f"member-{seed}"), name=f"member-{seed}")
        for seed in range(3)
    ]


def distilled(
    dataset: Dataset, members: list[TrainedModel], folder: Path, monkeypatch: pytest.MonkeyPatch, **asked: Any
) -> list[TrainedModel]:
    """What comes of a request; the training is the engine's own, at a placement that is given here."""
    monkeypatch.setattr(module, "planned", lambda run, setting, turn: (job_of(dataset, 0), PLACEMENT, None))
    monkeypatch.setattr(
        module,
        "train_one",
        lambda run, job, placement, expected, directory, *, name: train_model(job, placement, directory, name=name),
    )
    run = SimpleNamespace(
        request=TrainRequest(**asked), dataset=dataset, directory=folder, cluster=None, should_stop=lambda: None
    )
    tuned = SimpleNamespace(winners=("best",))
    return distil(cast("Any", run), cast("Any", tuned), members, PLACEMENT)


def test_what_is_distilled_is_trained_by_the_engine_and_competes(
    dataset: Dataset, members: list[TrainedModel], tracking_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = (members[0].directory / "model.safetensors").stat().st_size
    (student,) = distilled(dataset, members, tmp_path, monkeypatch, ensemble_memory=f"{one + 2_000}B")
    assert student.name == "distilled"
    assert student.data_fingerprint != dataset.fingerprint
    parent = start_run_tree(TrainRequest(), dataset)
    result = combine_members(
        dataset, [*members, student], PLACEMENT, tmp_path / "final", parent_run_id=parent, limits=EnsembleLimits(most=1)
    )
    assert [member.name for member in result.members][-1] == "distilled"
    assert result.best_single == "distilled"  # it knows what all of them know
    assert distilled(dataset, members, tmp_path, monkeypatch, distill="always") == [student]  # it is finished


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"distill": "never", "ensemble_memory": "1KiB"},
        {"ensemble_memory": "64MiB"},
        {"max_predict_milliseconds": 1e6},
    ],
)
def test_where_the_ensemble_has_room_or_none_is_wanted_nothing_is_trained(
    dataset: Dataset,
    members: list[TrainedModel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, Any],
) -> None:
    assert distilled(dataset, members, tmp_path, monkeypatch, **asked) == []
    assert not (tmp_path / "members").exists()
