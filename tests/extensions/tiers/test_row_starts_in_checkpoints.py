"""Checkpoints of tables in a file leave out rows that nobody has asked for, and a training ends bit by bit the same."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shunter.engine.checkpoint.checkpoint_settings import CheckpointSettings
from shunter.engine.checkpoint.directory import CheckpointDirectory
from shunter.engine.config import Execution, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.trainer import train
from shunter.engine.results import TrainResult
from shunter.models.embeddings import initial_weights
from shunter.models.embeddings.request import EmbeddingCache
from shunter.models.registry import Model, build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features
from tests.engine.interruptions import interrupt_at
from tests.engine.synthetic import memory_of_rows, write_dataset
from tests.extensions.incremental_checkpoints.test_changing_tables import EXECUTION, RATES, SPEC

SCHEDULE = Schedule(max_epochs=3, patience=4, seed=3)
IN_PARTS = CheckpointSettings(bits=32, rows="consecutive")


@pytest.fixture(autouse=True)
def from_hundred_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial_weights, "LATER_FROM_ROWS", 100)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=3_000, ids=2_000)


@pytest.fixture
def in_memory(dataset: Dataset) -> TrainResult:
    return train(TrainingJob(dataset, SPEC, RATES, EXECUTION, SCHEDULE))


def in_file(dataset: Dataset) -> Execution:
    return replace(EXECUTION, embedding_memory_bytes=memory_of_rows(900, SPEC.embedding_dim, dataset))


def stopping_at(last: int) -> Hooks:
    return Hooks(on_step=interrupt_at(last))


def assert_same(found: TrainResult, expected: TrainResult) -> None:
    weights = (found.model.state_dict().values(), expected.model.state_dict().values())
    assert all(torch.equal(left, right) for left, right in zip(*weights, strict=True))


def test_the_first_checkpoint_holds_only_what_was_asked_for(dataset: Dataset, tmp_path: Path) -> None:
    job = TrainingJob(dataset, SPEC, RATES, in_file(dataset), SCHEDULE)
    with pytest.raises(KeyboardInterrupt):
        train(job, stopping_at(3), Checkpointing(tmp_path, steps=1, checkpoint_settings=IN_PARTS))
    [part] = json.loads((tmp_path / "checkpoint.json").read_text())["parts"][:1]
    assert part["left_out"] == initial_weights.RULE
    rows = sum(path.stat().st_size for path in tmp_path.glob("rows-000001-*"))
    assert rows < sum(table.nbytes for table in build_model(SPEC, dataset.features).embeddings.tables) / 3


@pytest.mark.parametrize("rows", ["consecutive", "auto"])
def test_resumed_in_a_file_and_in_memory_in_turn(
    dataset: Dataset, in_memory: TrainResult, tmp_path: Path, rows: str
) -> None:
    checkpointing = Checkpointing(tmp_path, steps=4, checkpoint_settings=replace(IN_PARTS, rows=rows))  # type: ignore[arg-type]
    job = TrainingJob(dataset, SPEC, RATES, in_file(dataset), SCHEDULE)
    for stop, execution in ((6, job.execution), (20, EXECUTION), (47, job.execution)):
        with pytest.raises(KeyboardInterrupt):
            train(replace(job, execution=execution), stopping_at(stop), checkpointing)
    assert_same(train(job, checkpointing=checkpointing), in_memory)


def step(model: Model, kept: CheckpointDirectory[Model], row: int) -> None:
    """On a batch with one row of either table."""
    values, offsets = torch.full((2,), row, dtype=torch.int32), torch.arange(3, dtype=torch.int32)
    admitted = model.embeddings.admit(values, offsets)
    kept.record_rows(admitted, offsets)
    model(torch.ones(1, 1), admitted, offsets).sum().backward()


@pytest.mark.parametrize("is_resumed_in_memory", [False, True])
def test_the_best_weights_come_back_without_rows_that_began_later(tmp_path: Path, is_resumed_in_memory: bool) -> None:
    spec = model_spec(embedding_dim=4, bottom_widths=(4,), top_widths=(4,))
    features = Features(
        dense=("number",),
        categorical=tuple(CategoricalFeature(name=name, rows=120, multi_valued=False) for name in ("one", "two")),
    )
    expected: list[torch.Tensor] = []
    in_memory = build_model(spec, features, seed=0)
    for is_again in (False, True):
        cache = None if is_again and is_resumed_in_memory else EmbeddingCache(rows=20, window_batches=1)
        model = build_model(spec, features, seed=0, cache=cache).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        kept = CheckpointDirectory(tmp_path, {}, IN_PARTS)
        kept.follow(model)
        if is_again:
            kept.read(model, optimizer)
        for row in range(60, 80) if is_again else range(40):
            step(model, kept, row)
            if not is_again and row == 10:
                kept.keep_best(model, row)
            kept.write(model, optimizer, {"step": row})
            if not is_again and row == 10:
                for shard, initial in zip(
                    model.embeddings.initialised_shards(), in_memory.embeddings.tables, strict=True
                ):
                    assert shard.starts is not None
                    begun = torch.ones(120, dtype=torch.bool)
                    shard.starts.mask_initialised(begun)
                    expected.append(torch.where(begun[:, None], shard.weight, initial).clone())
        kept.finish()
    kept.restore_best(model)
    assert all(map(torch.equal, model.embeddings.tables, expected))
