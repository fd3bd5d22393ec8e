"""What a request says of checkpoints reaches the engine, and each run has its place among the copies."""

from pathlib import Path
from typing import Any

import pytest

from shunter.engine.checkpoint.checkpoint_settings import CheckpointSettings
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.job import TrainingJob
from shunter.errors import RequestError
from shunter.models.registry import model_spec
from shunter.requests import CheckpointRequest, TrainRequest
from shunter.tasks.run_state import check_copies, copies_address, forget_copies
from shunter.tasks.train.member import checkpointing_of
from tests.engine.synthetic import write_dataset


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TrainingJob[Any, Any, Any]:
    dataset = write_dataset(tmp_path_factory.mktemp("data"), rows=1_000)
    spec, schedule = model_spec(embedding_dim=4), Schedule(max_epochs=10)
    return TrainingJob(dataset, spec, Hyperparameters(), Execution(batch_size=70), schedule)


def test_options_reach_the_engine(tmp_path: Path) -> None:
    asked = TrainRequest(
        data="synthetic:100",
        checkpoint_minutes=0.5,
        checkpoint_bits="4",
        checkpoint_policy="one-shot",
        keep_checkpoints=3,
        checkpoint_rate=2,
        checkpoint_copy="memory://copies",
    ).checkpoints
    found = checkpointing_of(asked, tmp_path)
    assert (found.directory, found.seconds) == (tmp_path, 30.0)
    assert found.checkpoint_settings == CheckpointSettings(
        bits=4, rows="one-shot", generations=3, bytes_per_second=2 * 2**20, copied_to="memory://copies"
    )
    assert checkpointing_of(CheckpointRequest(), tmp_path).checkpoint_settings == CheckpointSettings()


def test_a_run_has_a_place_of_its_own_among_the_copies_which_goes_with_it(
    job: TrainingJob[Any, Any, Any], tmp_path: Path
) -> None:
    address = f"file://{tmp_path / 'copies'}"
    first, second = (TrainRequest(data="synthetic:100", seed=seed, checkpoint_copy=address) for seed in (1, 2))
    places = [copies_address(one, job.dataset) for one in (first, second)]
    assert len(set(places)) == 2
    assert all(str(place).startswith(f"{address}/") for place in places)
    assert copies_address(TrainRequest(data="synthetic:100"), job.dataset) is None
    check_copies(first)
    for place in places:
        folder = Path(str(place).removeprefix("file://"))
        folder.mkdir(parents=True)
        (folder / "state.safetensors").touch()
    forget_copies(first, job.dataset)
    assert [Path(str(place).removeprefix("file://")).exists() for place in places] == [False, True]


def test_an_address_with_a_password_or_that_cannot_be_written_to_is_refused() -> None:
    with pytest.raises(ValueError, match="address contains a password"):
        TrainRequest(data="synthetic:100", checkpoint_copy="ftp://me:secret@host/copies")
    with pytest.raises(RequestError, match="nowhere://copies"):
        check_copies(TrainRequest(data="synthetic:100", checkpoint_copy="nowhere://copies"))
