"""Training a DMT whose towers lie on two hosts of two processes is training it in one."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.trainer import train
from shunter.engine.results import TrainResult
from shunter.errors import InfeasibleError
from shunter.extensions.distributed.training.loader import BatchShare, ShareLoader
from shunter.extensions.distributed.training.plan import Sharding
from shunter.extensions.distributed.training.processes import ManyProcesses
from shunter.extensions.distributed.training.stored import gather_weights
from shunter.extensions.towers.dmt import DmtSpec
from shunter.extensions.towers.host_recommender import HostRecommender
from shunter.models.registry import build_model
from tests.engine.interruptions import interrupt_at
from tests.engine.synthetic import write_dataset
from tests.extensions.distributed.training.ranks import MACHINE, curve, run

PROCESSES, PER_HOST = 4, 2
# Towers of one and two fields on the first host and one of two on the second, none in the order of the data.
SPEC = DmtSpec(
    embedding_dim=8,
    bottom_widths=(8,),
    top_widths=(16,),
    tower_fields=(("single3",), ("bag0", "single0"), ("single2", "single1")),
)
EXECUTION = Execution(threads=1, batch_size=96)  # divisible, for weight decay would also see what fills up a batch
SCHEDULE = Schedule(max_epochs=2, patience=4, seed=3)
RATES = Hyperparameters(dense_learning_rate=5e-3, embedding_learning_rate=0.1, embedding_l2=1e-3)
STOPPED_AT = 11


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=1_000, single=4)


def gradient_gap(dataset: Dataset, rank: int) -> float:
    """Largest distance between a gradient of this process and that of one process with the whole batch."""
    model = HostRecommender.build(
        SPEC, dataset.features, RATES, torch.device("cpu"), seed=1, processes_per_host=PER_HOST, machine=MACHINE
    )
    batch = ShareLoader(rank, PROCESSES, dataset, "train", 90).read(slice(0, 90))
    assert isinstance(batch, BatchShare)
    total = binary_cross_entropy_with_logits(
        model(*batch.inputs)[: batch.own], batch.labels[: batch.own], reduction="sum"
    )
    (total * PROCESSES / 90).backward()
    model.average_gradients()
    alone = build_model(SPEC, dataset.features, seed=1)
    whole = BatchLoader(dataset, "train", 90).read(slice(0, 90))
    binary_cross_entropy_with_logits(alone(*whole.inputs), whole.labels).backward()
    expected = dict(alone.named_parameters())
    gaps = [
        float((parameter.grad - expected[name].grad).abs().max())  # type: ignore[operator]
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    ]
    others = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert others, "the towers of the other host are not computed here"
    assert all(".towers." in name for name in others)
    return max(gaps)


def train_here(dataset: Dataset, directory: Path, stop_at: int | None = None) -> dict[str, Any] | None:
    processes = ManyProcesses(dataset, Sharding(machine=MACHINE, processes_per_node=PER_HOST))

    try:
        result = train(
            TrainingJob(dataset, SPEC, RATES, EXECUTION, SCHEDULE),
            Hooks(on_step=interrupt_at(stop_at)),
            Checkpointing(directory),
            processes=processes,
        )
    except KeyboardInterrupt:
        return None
    assert isinstance(result.model, HostRecommender)
    return {
        "history": result.history,
        "best": processes.kept.best,
        "layers": {name: value.clone() for name, value in result.model.layers.state_dict().items()},
        "tables": [(shard.table, shard.weight.clone()) for shard in result.model.embeddings.shards()],
    }


def everything(dataset: Dataset, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"gap": gradient_gap(dataset, torch.distributed.get_rank())}
    found["whole"] = train_here(dataset, folder / "whole")
    train_here(dataset, folder / "stopped", STOPPED_AT)
    found["resumed"] = train_here(dataset, folder / "stopped")
    try:
        small = replace(MACHINE, memory_bytes=100)
        HostRecommender.build(
            SPEC, dataset.features, RATES, torch.device("cpu"), seed=1, processes_per_host=PER_HOST, machine=small
        )
    except InfeasibleError as error:
        found["error"] = str(error)
    return found


@pytest.fixture(scope="module")
def group(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("group")
    return run(PROCESSES, folder, partial(everything, dataset, folder))


@pytest.fixture(scope="module")
def alone(dataset: Dataset) -> TrainResult:
    return train(TrainingJob(dataset, SPEC, RATES, EXECUTION, SCHEDULE))


def test_the_gradient_is_that_of_one_process(group: list[Any]) -> None:
    assert max(results["gap"] for results in group) < 1e-6


def test_losses_and_weights_are_those_of_one_process(group: list[Any], alone: TrainResult, dataset: Dataset) -> None:
    for results in group:
        assert curve(results["whole"]["history"]) == pytest.approx(curve(alone.history), abs=1e-5)
    model = build_model(SPEC, dataset.features)
    gather_weights(group[0]["whole"]["best"], model)
    for name, weight in alone.model.state_dict().items():
        assert torch.allclose(model.state_dict()[name], weight, atol=1e-5), name


def test_the_modules_of_a_tower_are_the_same_within_its_host(group: list[Any]) -> None:
    first, second, third, fourth = (results["whole"]["layers"] for results in group)
    for name, weight in first.items():
        assert torch.equal(weight, second[name]), name
        assert torch.equal(third[name], fourth[name]), name
    tables = [table for results in group for table, _ in results["whole"]["tables"]]
    assert sorted(tables) == list(range(len(tables)))


def test_a_resumed_training_ends_as_one_that_was_not_interrupted(group: list[Any]) -> None:
    for results in group:
        whole, resumed = results["whole"], results["resumed"]
        assert curve(resumed["history"]) == curve(whole["history"])
        for name, weight in whole["layers"].items():
            assert torch.equal(resumed["layers"][name], weight), name
        for (_, one), (_, other) in zip(whole["tables"], resumed["tables"], strict=True):
            assert torch.equal(one, other)


def test_tables_that_do_not_fit_are_refused(group: list[Any]) -> None:
    assert all("more processes on each host, or other towers" in results["error"] for results in group)
