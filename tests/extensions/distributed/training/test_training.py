"""Training in two and four processes is that in one."""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from shunter.engine.checkpoint.checkpoint_settings import CheckpointSettings
from shunter.engine.config import Hyperparameters
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import TrainingJob
from shunter.engine.loop.trainer import train
from shunter.engine.results import TrainResult
from shunter.extensions.distributed.tables.sharding_types import EXACT_SHARDING_TYPES, Choice
from shunter.extensions.distributed.training.plan import Sharding, with_stored_machine
from shunter.extensions.distributed.training.stored import gather_weights
from shunter.models.registry import build_model
from tests.engine.synthetic import write_dataset
from tests.extensions.distributed.training.ranks import (
    EXECUTION,
    MACHINE,
    RATES,
    SCHEDULE,
    SPEC,
    curve,
    run,
    train_and_stop,
    train_here,
)

pytest.importorskip("torchrec")
CLOSE = 1e-5
CLOSE_IN_BF16 = 2e-3
STOPPED_AT = 13
IN_PARTS = {"checkpoint_steps": 4, "checkpoint_settings": CheckpointSettings(rows="consecutive")}
IN_8_BITS = CheckpointSettings(rows="auto", bits=8)
GIVEN = (  # a plan that was made before, of every exact kind on one host
    Choice("table_wise", (1,)),
    Choice("row_wise"),
    Choice("data_parallel"),
    Choice("table_wise", (0,)),
)
COSINE = replace(RATES, learning_rate_schedule="cosine", warmup_epochs=0.5)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=2_000)


@pytest.fixture(scope="module")
def alone(dataset: Dataset) -> TrainResult:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    result = train(TrainingJob(dataset, SPEC, RATES, EXECUTION, SCHEDULE))
    torch.set_num_threads(threads)
    return result


def cases(dataset: Dataset, folder: Path) -> dict[str, Any]:
    """Everything that one group is needed for."""
    found = {}
    for kind in EXACT_SHARDING_TYPES:
        found[kind] = train_here(dataset, folder / kind, sharding={"types": (kind,)})
    found["given"] = train_here(dataset, folder / "given", sharding={"given": GIVEN})
    found["planned"] = train_here(dataset, folder / "planned")
    found["cosine"] = train_here(dataset, folder / "cosine", hyperparameters=COSINE)
    threads = {"execution": replace(EXECUTION, threads=2)}
    found["threads repeated"] = [train_here(dataset, folder / f"threads{n}", **threads) for n in range(2)]
    train_and_stop(dataset, folder / "threads resumed", STOPPED_AT, **threads, **IN_PARTS)
    found["threads resumed"] = train_here(dataset, folder / "threads resumed", **threads, **IN_PARTS)
    mixed = {"sharding": {"types": ("row_wise",), "precision": "bf16"}}
    found["repeated"] = [train_here(dataset, folder / f"repeated{n}", **mixed) for n in range(2)]
    train_and_stop(dataset, folder / "resumed", STOPPED_AT, **mixed, **IN_PARTS)
    found["resumed"] = train_here(dataset, folder / "resumed", **mixed, **IN_PARTS)
    shampoo = {"hyperparameters": Hyperparameters(dense_optimizer="shampoo", dense_learning_rate=5e-3)}
    found["shampoo"] = train_here(dataset, folder / "shampoo", **shampoo)
    train_and_stop(dataset, folder / "shampoo resumed", STOPPED_AT, **shampoo)
    found["shampoo resumed"] = train_here(dataset, folder / "shampoo resumed", **shampoo)
    in_rows = {"sharding": {"types": ("row_wise",)}}
    train_and_stop(dataset, folder / "handed on", STOPPED_AT, **in_rows)
    train_and_stop(dataset, folder / "handed on in parts", STOPPED_AT, **in_rows, **IN_PARTS)
    train_and_stop(
        dataset, folder / "handed on in 8 bits", STOPPED_AT, **in_rows, **{**IN_PARTS, "checkpoint_settings": IN_8_BITS}
    )
    return found


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.long)])
def group(request: pytest.FixtureRequest, dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("group")
    results = run(request.param, folder, cases, dataset, folder)
    for result in results:
        result["folder"] = folder
    return results


def assert_close(history: Any, expected: TrainResult) -> None:
    assert curve(history) == pytest.approx(curve(expected.history), abs=CLOSE)


def test_tables_lie_where_a_given_plan_says_and_the_loss_curve_is_that_of_one_process(
    group: list[Any], alone: TrainResult
) -> None:
    for rank in group:
        assert rank["given"]["types"] == [table.kind for table in GIVEN]
        assert_close(rank["given"]["history"], alone)
    where = [[shard[0] for shard in rank["given"]["shards"]] for rank in group]
    assert (sum(sorted(one) == [1, 2] for one in where), sorted(where[0]), sorted(where[1])) == (
        len(group) - 2,
        [1, 2, 3],
        [0, 1, 2],
    )


@pytest.mark.parametrize("kind", [*EXACT_SHARDING_TYPES, "planned"])
def test_the_loss_curve_is_that_of_one_process(group: list[Any], alone: TrainResult, kind: str) -> None:
    for rank in group:
        assert_close(rank[kind]["history"], alone)
    assert group[0][kind]["types"] == ([kind] * 4 if kind != "planned" else group[1][kind]["types"])


def test_rates_that_change_do_so_in_every_process(group: list[Any], alone: TrainResult, dataset: Dataset) -> None:
    expected = train(TrainingJob(dataset, SPEC, COSINE, EXECUTION, SCHEDULE))
    assert curve(expected.history) != pytest.approx(curve(alone.history), abs=10 * CLOSE)
    for rank in group:
        assert_close(rank["cosine"]["history"], expected)


@pytest.mark.parametrize("kind", EXACT_SHARDING_TYPES)
def test_the_gathered_weights_are_those_of_one_process(
    group: list[Any], alone: TrainResult, dataset: Dataset, kind: str
) -> None:
    model = build_model(SPEC, dataset.features)
    gather_weights(group[0][kind]["best"], model)
    for name, weight in alone.model.state_dict().items():
        assert torch.allclose(model.state_dict()[name], weight, atol=CLOSE), name


def test_every_row_lies_in_one_place(group: list[Any], dataset: Dataset) -> None:
    rows = sum(field.rows for field in dataset.features.categorical)
    for kind in ("table_wise", "row_wise", "table_row_wise"):
        assert sum(len(shard[3]) for rank in group for shard in rank[kind]["shards"]) == rows


@pytest.mark.parametrize("case", ["repeated", "resumed"])
@pytest.mark.parametrize("run", ["", "threads "], ids=["bf16", "two threads"])
def test_the_same_seed_gives_bitwise_the_same_model(group: list[Any], run: str, case: str) -> None:
    for rank in group:
        first, again = rank[f"{run}repeated"]
        second = again if case == "repeated" else rank[f"{run}resumed"]
        assert curve(first["history"]) == curve(second["history"])
        for left, right in zip(first["shards"], second["shards"], strict=True):
            assert left[:3] == right[:3]
            assert torch.equal(left[3], right[3])
            assert torch.equal(left[4], right[4])
        for name, weight in first["layers"].items():
            assert torch.equal(weight, second["layers"][name])


@pytest.mark.parametrize(
    "other",
    [
        (1, "table_wise", "handed on"),
        (1, "table_wise", "handed on in parts"),
        (3, "row_wise", "handed on in parts"),
        (3, "row_wise", "handed on in 8 bits"),
    ],
)
def test_another_number_of_processes_goes_on_to_the_same_result(
    group: list[Any], alone: TrainResult, dataset: Dataset, tmp_path: Path, other: tuple[int, str, str]
) -> None:
    ranks, kind, left = other
    shutil.copytree(group[0]["folder"] / left, tmp_path / "checkpoint")
    is_in_parts = any("rows" in path.name for path in (tmp_path / "checkpoint").glob("*/*"))
    assert is_in_parts == (left != "handed on")
    go_on = partial(train_here, sharding={"types": (kind,)})
    results = run(ranks, tmp_path, go_on, dataset, tmp_path / "checkpoint")
    for rank in results:
        if left == "handed on in 8 bits":
            assert curve(rank["history"]) == pytest.approx(curve(alone.history), abs=0.01)
            assert curve(rank["history"]) != pytest.approx(curve(alone.history), abs=1e-6)
        else:
            assert_close(rank["history"], alone)


def test_reduced_precision_on_the_way_changes_the_losses_little(group: list[Any], alone: TrainResult) -> None:
    lossy = curve(group[0]["repeated"][0]["history"])
    assert lossy == pytest.approx(curve(alone.history), abs=CLOSE_IN_BF16)
    assert lossy != pytest.approx(curve(alone.history), abs=CLOSE)


def test_shampoo_divided_over_the_processes_is_shampoo_in_one(group: list[Any], dataset: Dataset) -> None:
    rates = Hyperparameters(dense_optimizer="shampoo", dense_learning_rate=5e-3)
    alone = train(TrainingJob(dataset, SPEC, rates, EXECUTION, SCHEDULE))
    for rank in group:
        assert_close(rank["shampoo"]["history"], alone)
        assert curve(rank["shampoo resumed"]["history"]) == curve(rank["shampoo"]["history"])


def links(folder: Path) -> list[float | None]:
    """Speeds that a training begins with, and resumes with whatever is measured or told meanwhile."""
    measured = Sharding(machine=replace(MACHINE, link_bytes_per_second=None))
    begun = [measured, measured, Sharding(machine=MACHINE)]
    found = [with_stored_machine(one, torch.device("cpu"), folder) for one in begun]
    return [one.machine.link_bytes_per_second for one in found]


def test_a_resumed_training_plans_with_the_machine_that_it_began_with(tmp_path: Path) -> None:
    first, second = run(2, tmp_path / "two", links, tmp_path / "checkpoint")
    assert first == second
    assert first[0] == first[1] == first[2] > 0
    others = run(3, tmp_path / "three", links, tmp_path / "checkpoint")
    assert json.loads((tmp_path / "checkpoint" / "machine.choice.json").read_text())["processes"] == 3
    assert all(other == others[0] for other in others)
