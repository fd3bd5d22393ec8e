"""Divided tables in files: bit by bit the training whose tables are divided by row in memory."""

import os
import signal
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from shunter.engine.checkpoint.checkpoint_settings import CheckpointSettings
from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Checkpointing, TrainingJob
from shunter.errors import RequestError
from shunter.extensions.distributed.executors.process_group import ProcessGroup
from shunter.extensions.distributed.training.plan import Sharding
from shunter.extensions.tiers.embedding_cache import cached_rows
from shunter.extensions.tiers.tiered import TieredEmbeddings
from shunter.extensions.tiers.tiers import RowTiers
from shunter.hardware.types import Placement
from shunter.models.embeddings import initial_weights
from tests.engine.synthetic import memory_of_rows, write_dataset
from tests.extensions.distributed.training.ranks import (
    EXECUTION,
    LONGEST_WAIT_SECONDS,
    MACHINE,
    RATES,
    SCHEDULE,
    SPEC,
    run,
    start,
    train_and_stop,
    train_here,
)

pytest.importorskip("torchrec")
BY_ROW = {"sharding": {"types": ("row_wise",)}}
OPTIONS = {"hyperparameters": replace(RATES, embedding_l2=0.003), **BY_ROW}
NARROW, ROOMY = 330, 600  # of 1,806 rows; batches wait for their turn in the first
IN_PARTS = {"checkpoint_steps": 4, "checkpoint_settings": CheckpointSettings(rows="consecutive")}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=2_000, ids=450)


def in_files(rows: int, dataset: Dataset) -> Execution:
    """With room for so many rows in the memory of all processes together."""
    return replace(EXECUTION, embedding_memory_bytes=memory_of_rows(rows, SPEC.embedding_dim, dataset))


def cases(dataset: Dataset, folder: Path) -> dict[str, Any]:
    """Everything that one group is needed for; all tables are drawn row by row, in files when a row is touched."""
    initial_weights.LATER_FROM_ROWS = 100
    roomy = {**OPTIONS, "execution": in_files(ROOMY, dataset)}
    found: dict[str, Any] = {"in memory": train_here(dataset, folder / "in memory", **OPTIONS)}
    found["ahead"] = train_here(dataset, folder / "ahead", **roomy)
    narrow = {**OPTIONS, "execution": in_files(NARROW, dataset)}
    found["waiting"] = train_here(dataset, folder / "waiting", **narrow, **IN_PARTS)
    train_and_stop(dataset, folder / "resumed", 7, **narrow, **IN_PARTS)
    train_and_stop(dataset, folder / "resumed", 19, **OPTIONS, **IN_PARTS)
    found["resumed"] = train_here(dataset, folder / "resumed", **roomy)
    try:
        train_here(dataset, folder / "small", **{**OPTIONS, "execution": in_files(40, dataset)})
    except RequestError as error:
        found["small"] = str(error)
    return found


@pytest.fixture(scope="module")
def group(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("group")
    return run(3, folder, cases, dataset, folder)


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert [(one.train_logloss, one.validation) for one in found["history"]] == [
        (one.train_logloss, one.validation) for one in expected["history"]
    ]
    for name, weight in expected["layers"].items():
        assert torch.equal(weight, found["layers"][name])


def assert_same_tables(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Of all processes together, for the blocks may lie with others."""
    blocks, others = (
        {shard[:3]: shard[3:] for rank in ranks for shard in rank["shards"]} for ranks in (found, expected)
    )
    assert blocks.keys() == others.keys()
    assert all(torch.equal(*pair) for block, parts in blocks.items() for pair in zip(parts, others[block], strict=True))


@pytest.mark.parametrize("case", ["ahead", "waiting", "resumed"])
def test_weights_sums_and_losses_are_those_of_tables_in_memory(group: list[Any], case: str) -> None:
    assert_same_tables(*([rank[name] for rank in group] for name in (case, "in memory")))
    for rank in group:
        assert_same(rank[case], rank["in memory"])
        tiers = rank[case]["tiers"]
        assert tiers.rows == (NARROW if case == "waiting" else ROOMY) // len(group)
        assert tiers.hits > 0
        assert rank["in memory"]["tiers"] is None
    if case == "waiting":
        assert sum(rank[case]["tiers"].written_back for rank in group) > 100


def test_a_batch_that_does_not_fit_into_the_memory_of_one_is_refused_by_all(group: list[Any]) -> None:
    for rank in group:
        assert "rows of a process cannot hold the" in rank["small"]
    assert len({rank["small"] for rank in group}) == 1


def kill_within_an_eviction(dataset: Dataset, folder: Path, evictions: int) -> None:
    """The second process dies when the weights of rows that leave are in its file, and their sums are not."""
    left = evictions

    def half_written(self: RowTiers, rows: torch.Tensor, slots: torch.Tensor) -> None:
        nonlocal left
        left -= bool(len(rows))
        self.weight.index_copy_(0, rows, self._fast_weight.index_select(0, slots))
        if not left and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        self.adagrad_sum.index_copy_(0, rows, self._fast_sum.index_select(0, slots))

    RowTiers.write_back = half_written
    train_here(dataset, folder, **OPTIONS, execution=in_files(NARROW, dataset), **IN_PARTS)


def test_killed_within_an_eviction_it_goes_on_bit_by_bit(dataset: Dataset, tmp_path: Path) -> None:
    begun = [start(2, tmp_path / "killed", kill_within_an_eviction, dataset, tmp_path / "checkpoint", 12)]
    processes: list[BaseProcess] = begun[0]
    processes[1].join(LONGEST_WAIT_SECONDS)
    processes[0].terminate()
    processes[0].join(LONGEST_WAIT_SECONDS)
    assert processes[1].exitcode == -signal.SIGKILL
    assert list((tmp_path / "checkpoint").glob("checkpoint-*"))
    found = run(2, tmp_path / "again", _both, dataset, tmp_path)
    assert_same_tables([rank[0] for rank in found], [rank[1] for rank in found])
    for rank in found:
        assert_same(*rank)


def _both(dataset: Dataset, folder: Path) -> list[dict[str, Any]]:
    in_file = {**OPTIONS, "execution": in_files(NARROW, dataset)}
    return [train_here(dataset, folder / "checkpoint", **in_file), train_here(dataset, folder / "memory", **OPTIONS)]


@pytest.mark.usefixtures("warm_processes")
def test_the_group_hands_over_a_model_in_a_file_with_the_counts_of_all(dataset: Dataset, tmp_path: Path) -> None:
    execution = in_files(ROOMY, dataset)
    placement = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=97, processes=2)
    job = TrainingJob(dataset, SPEC, RATES, execution, replace(SCHEDULE, max_epochs=1))
    result = ProcessGroup(placement, Sharding(machine=MACHINE)).run(job, checkpointing=Checkpointing(tmp_path))
    assert isinstance(result.model.embeddings, TieredEmbeddings)
    tiers = result.tiers
    assert tiers is not None
    assert (tiers.rows, tiers.processes) == (ROOMY, 2)
    assert tiers.highest_miss_rate is not None
    assert tiers.highest_miss_rate >= tiers.miss_rate > 0
    assert tiers.lookups > dataset.splits["train"].rows * 3
    assert cached_rows(SPEC, dataset.features, execution.embedding_memory_bytes or 0) == ROOMY
