"""A trial's finished training becomes a member: the same model, with a run of its own."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.job import ClickJob, TrainingJob
from shunter.engine.trained_model import TrainedModel
from shunter.hardware.types import Placement
from shunter.models.registry import model_spec
from shunter.requests import TrainRequest
from shunter.tasks.train import adopt_trial, train_model
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri
from tests.engine.synthetic import write_dataset

PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=1_000)


def job_of(dataset: Dataset, seed: int = 0) -> ClickJob:
    spec = model_spec(embedding_dim=4, bottom_widths=(8,), top_widths=(8,))
    schedule = Schedule(max_epochs=2, seed=seed)
    return TrainingJob(dataset, spec, Hyperparameters(), execution_of(PLACEMENT), schedule)


@pytest.fixture
def trial(dataset: Dataset, tmp_path: Path) -> TrainedModel:
    trained = train_model(job_of(dataset), PLACEMENT, tmp_path / "trial", name="trial-4")
    kept = trained.model_copy(update={"trial": 4})
    kept.save()
    return kept


def test_member_is_the_trial_with_a_run_of_its_own(
    dataset: Dataset, trial: TrainedModel, tracking_root: Path, tmp_path: Path
) -> None:
    parent = start_run_tree(TrainRequest(), dataset)
    weights = (trial.directory / "model.safetensors").read_bytes()
    folder = tmp_path / "member"
    member = adopt_trial(trial.directory, job_of(dataset), folder, name="member-0", parent_run_id=parent)
    assert member is not None
    assert (member.name, member.trial, member.history) == ("member-0", 4, trial.history)
    assert (folder / "model.safetensors").read_bytes() == weights
    assert not trial.directory.exists()  # its bytes are not kept twice
    assert member.run_id is not None
    run = MlflowClient(tracking_uri()).get_run(member.run_id)
    assert run.data.tags["training.trial"] == "trial-4"
    assert run.data.metrics["quality.ne"] == pytest.approx(trial.validation.ne)
    again = adopt_trial(None, job_of(dataset), folder, name="member-0", parent_run_id=parent)
    assert again == member
    assert train_model(job_of(dataset), PLACEMENT, folder, parent_run_id=parent) == member


def test_trial_of_another_seed_is_trained_anew(dataset: Dataset, trial: TrainedModel, tmp_path: Path) -> None:
    other = job_of(dataset, seed=1)
    assert adopt_trial(trial.directory, other, tmp_path / "member", name="member-0", parent_run_id=None) is None
    assert trial.directory.exists()


def test_nothing_kept_is_nothing_taken(dataset: Dataset, tmp_path: Path) -> None:
    assert adopt_trial(None, job_of(dataset), tmp_path / "member", name="member-0", parent_run_id=None) is None
