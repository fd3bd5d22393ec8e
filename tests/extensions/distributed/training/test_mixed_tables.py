"""Tables of several widths, some with shared rows, divided over processes: the training is that in one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from shunter.engine.data.dataset import Dataset
from shunter.engine.job import TrainingJob
from shunter.engine.loop.trainer import train
from shunter.engine.results import TrainResult
from shunter.extensions.distributed.tables.sharding_types import Choice
from shunter.extensions.distributed.training.stored import gather_weights
from shunter.models.registry import build_model
from tests.engine.synthetic import write_dataset
from tests.extensions.distributed.training.ranks import (
    EXECUTION,
    RATES,
    SCHEDULE,
    SPEC,
    curve,
    run,
    train_and_stop,
    train_here,
)

pytest.importorskip("torchrec")
MIXED = replace(SPEC, table_dims=(4, 8, 4, 8), table_shares=(1.0, 0.2, 0.5, 1.0))
KINDS = ("table_wise", "row_wise")
ONE_BY_ONE = (
    Choice("row_wise", replicated_rows=3),
    Choice("data_parallel"),
    Choice("table_wise", (1,), replicated_rows=1),
    Choice("row_wise"),
)
CLOSE = 1e-5


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=2_000)


@pytest.fixture(scope="module")
def alone(dataset: Dataset) -> TrainResult:
    return train(TrainingJob(dataset, MIXED, RATES, EXECUTION, SCHEDULE))


def cases(dataset: Dataset, folder: Path) -> dict[str, Any]:
    found = {
        kind: train_here(dataset, folder / kind, spec=MIXED, sharding={"types": (kind,)})
        for kind in (*KINDS, "data_parallel")
    }
    train_and_stop(dataset, folder / "resumed", 13, spec=MIXED, sharding={"types": ("row_wise",)})
    found["resumed"] = train_here(dataset, folder / "resumed", spec=MIXED, sharding={"types": ("row_wise",)})
    train_and_stop(dataset, folder / "one_by_one", 13, spec=MIXED, sharding={"given": ONE_BY_ONE})
    found["one_by_one"] = train_here(dataset, folder / "one_by_one", spec=MIXED, sharding={"given": ONE_BY_ONE})
    return found


@pytest.fixture(scope="module")
def group(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("group")
    return run(2, folder, cases, dataset, folder)


@pytest.mark.parametrize("case", [*KINDS, "data_parallel", "resumed", "one_by_one"])
def test_losses_and_weights_are_those_of_one_process(
    group: list[Any], alone: TrainResult, dataset: Dataset, case: str
) -> None:
    for rank in group:
        assert curve(rank[case]["history"]) == pytest.approx(curve(alone.history), abs=CLOSE)
    model = build_model(MIXED, dataset.features)
    gather_weights(group[0][case]["best"], model)
    for name, weight in alone.model.state_dict().items():
        assert torch.allclose(model.state_dict()[name], weight, atol=CLOSE), name


def test_processes_hold_the_rows_that_are_kept_and_no_more(group: list[Any], dataset: Dataset) -> None:
    tables = MIXED.tables(dataset.features)
    for kind in KINDS:
        held = sum(shard[3].numel() for rank in group for shard in rank[kind]["shards"])
        assert held == sum(table.rows * table.width for table in tables)
