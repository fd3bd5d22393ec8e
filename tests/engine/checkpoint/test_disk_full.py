"""A disk that fills up while something is written: one sentence, and what was there before is whole.

The limit on the size of a file (`RLIMIT_FSIZE`) makes the kernel refuse to write on, as a full disk does.
"""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from shunter.engine.checkpoint.checked_files import write_text
from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.trainer import train
from shunter.errors import CheckpointError
from shunter.models.registry import build_model, model_spec
from tests.engine.synthetic import write_dataset


@contextmanager
def files_of_at_most(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_text_that_does_not_fit_leaves_the_former_one(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_text(path, "before")
    with files_of_at_most(1_000), pytest.raises(CheckpointError, match="free some disk space"):
        write_text(path, "x" * 5_000)
    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["state.json"]


def test_model_that_does_not_fit_leaves_the_former_one(tmp_path: Path) -> None:
    features = write_dataset(tmp_path / "data", rows=100).features
    small, large = (build_model(model_spec(embedding_dim=dim), features, seed=0).eval() for dim in (4, 64))
    save_model(small, tmp_path / "model")
    with files_of_at_most(20_000), pytest.raises(CheckpointError, match=r"model\.safetensors"):
        save_model(large, tmp_path / "model")
    kept = load_model(tmp_path / "model")
    assert all(torch.equal(one, other) for one, other in zip(kept.parameters(), small.parameters(), strict=True))


def test_training_ends_in_one_sentence_and_resumes_from_the_last_checkpoint(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data", rows=600)
    spec, schedule = model_spec(embedding_dim=4), Schedule(max_epochs=3)
    job = TrainingJob(dataset, spec, Hyperparameters(), Execution(batch_size=64), schedule)
    checkpointing = Checkpointing(tmp_path / "checkpoint", seconds=0.0)
    undisturbed = train(job)

    def go_on() -> object:
        return train(job, checkpointing=checkpointing)

    def fill_up() -> None:
        asked.append(1)
        if len(asked) == 10:  # the disk is full from here on
            resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    asked: list[int] = []
    with files_of_at_most(resource.RLIM_INFINITY), pytest.raises(CheckpointError, match="cannot be written") as caught:
        train(job, Hooks(should_stop=fill_up), checkpointing)
    assert "\n" not in str(caught.value)
    resumed = go_on()
    assert [one.train_logloss for one in resumed.history] == [one.train_logloss for one in undisturbed.history]  # type: ignore[attr-defined]
