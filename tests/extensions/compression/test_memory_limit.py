"""Members packed into a number of bytes: stored, scored and told as they are."""

from pathlib import Path

import pytest

from shunter.engine.checkpoint.storage import load_model
from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.result import read_finished
from shunter.engine.execution import execution_of
from shunter.engine.job import TrainingJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.trained_model import TrainedModel
from shunter.errors import InfeasibleError
from shunter.hardware.types import Placement
from shunter.models.registry import model_spec
from shunter.requests import TrainRequest
from shunter.tasks.ensemble import EnsembleLimits, combine_members
from shunter.tasks.train import train_model
from shunter.tracking.history import read_children
from shunter.tracking.runs import start_run_tree
from tests.engine.synthetic import write_dataset

PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=3_000, ids=400)


@pytest.fixture(scope="module")
def members(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> list[TrainedModel]:
    return [
        train_model(
            TrainingJob(
                dataset,
                model_spec(embedding_dim=8, bottom_widths=(8,), top_widths=(64, 32)),
                Hyperparameters(dense_learning_rate=0.01, embedding_learning_rate=0.1),
                execution_of(PLACEMENT),
                Schedule(max_epochs=2, seed=seed),
            ),
            PLACEMENT,
            tmp_path_factory.mktemp(f"member-{seed}"),
            name=f"member-{seed}",
        )
        for seed in range(3)
    ]


def within(memory_bytes: int, error_rate: float | None = None) -> EnsembleLimits:
    return EnsembleLimits(memory_bytes=memory_bytes, memory_error_rate=error_rate)


@pytest.fixture
def parent(tracking_root: Path, dataset: Dataset) -> str:
    return start_run_tree(TrainRequest(), dataset)


def test_members_are_packed_into_the_bytes_of_one(
    dataset: Dataset, members: list[TrainedModel], parent: str, tmp_path: Path
) -> None:
    one = (members[0].directory / WEIGHTS).stat().st_size
    result = combine_members(
        dataset, members, PLACEMENT, tmp_path, parent_run_id=parent, limits=EnsembleLimits(memory_bytes=one)
    )
    memory = result.memory
    assert memory is not None
    assert result.kept == "ensemble"
    assert memory.bytes_after == (tmp_path / WEIGHTS).stat().st_size <= one < memory.bytes_before
    assert [one.members for one in memory.tried] == list(range(1, len(memory.tried) + 1))
    assert set(memory.forms) == {member.name for member in result.members if member.is_used}
    assert memory.sentence in result.reason
    assert f"NE {memory.ne_after:.4f} instead of {memory.ne_before:.4f}" in memory.sentence
    execution = execution_of(PLACEMENT)
    model = load_model(tmp_path)
    assert evaluate(model, dataset, "test", execution).metrics == result.test
    assert evaluate(model, dataset, "validation", execution).metrics.ne == pytest.approx(memory.ne_after, abs=1e-5)
    assert read_finished(tmp_path, dataset.fingerprint, tuple(one.name for one in members)) == result
    (run,) = read_children(parent, "ensemble")
    assert run.metrics["ensemble.memory.bytes_after"] == memory.bytes_after


def test_what_has_room_as_it_is_stays_as_it_is(
    dataset: Dataset, members: list[TrainedModel], parent: str, tmp_path: Path
) -> None:
    result = combine_members(
        dataset, members[:1], PLACEMENT, tmp_path, parent_run_id=parent, limits=EnsembleLimits(memory_bytes=1 << 20)
    )
    assert result.memory is not None
    assert not result.memory.forms
    assert "as they are" in result.reason
    assert result.memory.ne_after == pytest.approx(result.validation.ne)


def test_where_the_memory_errs_as_many_are_kept_as_help_under_its_errors(
    dataset: Dataset, members: list[TrainedModel], parent: str, tmp_path: Path
) -> None:
    one = (members[0].directory / WEIGHTS).stat().st_size
    result = combine_members(dataset, members, PLACEMENT, tmp_path, parent_run_id=parent, limits=within(one, 1e-2))
    memory = result.memory
    assert memory is not None
    assert memory.error_rate == 1e-2
    assert all("with check bits" in form for form in memory.forms.values())
    under_errors = [size.ne_under_errors for size in memory.tried]
    assert all((size.ne_under_errors or 0) > size.ne for size in memory.tried)
    assert under_errors[len(memory.forms) - 1] == min(filter(None, under_errors))
    (run,) = read_children(parent, "ensemble")
    assert run.metrics["ensemble.memory.tried_ne_under_errors.1"] == under_errors[0]


def test_fewer_bytes_than_any_form_takes_are_refused(
    dataset: Dataset, members: list[TrainedModel], parent: str, tmp_path: Path
) -> None:
    with pytest.raises(InfeasibleError, match="--ensemble-memory"):
        combine_members(
            dataset, members[:1], PLACEMENT, tmp_path, parent_run_id=parent, limits=EnsembleLimits(memory_bytes=3_000)
        )


def test_requests_that_cannot_be_packed_are_refused() -> None:
    assert TrainRequest(ensemble_memory="2MiB").ensemble.memory_bytes == 2 << 20
    with pytest.raises(ValueError, match="is not a size"):
        TrainRequest(ensemble_memory="much")
