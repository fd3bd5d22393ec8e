"""A super-net finds what was planted in the data, weighs it against its cost, and draws what does well by itself."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.batch import Batch
from shunter.engine.data.dataset import Dataset, SplitStatistics
from shunter.engine.data.loader import BatchLoader
from shunter.engine.job import TrainingJob
from shunter.engine.loop.trainer import train
from shunter.extensions.nas.architecture_search import Learned, SupernetSchedule, SupernetTraining, held_out
from shunter.extensions.nas.supernet.costs import CostTable, CountedBytes, cost_table
from shunter.extensions.nas.supernet.network import Supernet
from shunter.extensions.nas.supernet.space import Architecture, Masks, SupernetSpace, draw
from shunter.models.families.dlrm import DlrmSpec
from tests.engine.reasons import ENOUGH
from tests.engine.synthetic import write_dataset

IDS, NARROW, WIDE = 24, 2, 16
EXECUTION = Execution(batch_size=256)
RATES = Hyperparameters(dense_learning_rate=5e-3, embedding_learning_rate=0.2)


def write_planted(directory: Path, rows: int = 16_000) -> Dataset:
    """Four fields a, b, c and d: a meets c in a product of rank 2, and b meets d in one of rank 16."""
    dataset = write_dataset(directory, rows=rows, dense=0, single=4, bags=0, ids=IDS)
    random = np.random.default_rng(0)
    factors = [random.normal(0, width**-0.25, (2, IDS, width)) for width in (NARROW, WIDE)]
    statistics = {}
    for split, part in dataset.splits.items():
        ids = random.integers(0, IDS, (part.rows, 4)).astype(np.int32)
        logits = sum(
            (2 + 2 * first) * np.sum(of[0][ids[:, first]] * of[1][ids[:, first + 2]], axis=1)
            for first, of in enumerate(factors)
        )
        labels = (random.random(part.rows) < 1 / (1 + np.exp(-logits))).astype(np.float32)
        np.save(directory / f"{split}.categorical.npy", ids)
        np.save(directory / f"{split}.label.npy", labels)
        statistics[split] = SplitStatistics(rows=part.rows, positives=int(labels.sum()))
    return replace(dataset, splits=statistics)


def planted_space() -> SupernetSpace:
    """The widths of a and b are chosen; those of c and d are as wide as anything can be."""
    return SupernetSpace(
        base=DlrmSpec(embedding_dim=WIDE),
        bottom=(),
        top=(),
        interactions=("dot",),
        dims=((NARROW, WIDE), (NARROW, WIDE), (WIDE,), (WIDE,)),
        shares=((1.0,),) * 4,
    )


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_planted(tmp_path_factory.mktemp("planted"))


def trained(dataset: Dataset, space: SupernetSpace, schedule: SupernetSchedule) -> tuple[SupernetTraining, CostTable]:
    network = Supernet(space, dataset.features, seed=0, embedding_learning_rate=0.2, kernel="torch")
    training = SupernetTraining(network, dataset, RATES, EXECUTION, schedule, seed=0)
    assert training.warm_up() is None
    return training, cost_table(network, CountedBytes(network))


def test_in_some_steps_the_largest_architecture_learns_alone(planted: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    space = replace(planted_space(), top=((8, 32), (0, 16)), interactions=("dot", "fm"))
    seen = []
    forward = Supernet.forward

    def noted(self: Supernet, dense: torch.Tensor, values: torch.Tensor, offsets: torch.Tensor, masks: Masks) -> Any:
        is_alone = bool((masks.values.amax(2) == 1).all() and (masks.values == masks.values[:1]).all())
        picked = {name: int(masks[name][0].argmax()) for name in self.coding.sizes}
        seen.append(self.coding.decode(picked) if is_alone else None)
        return forward(self, dense, values, offsets, masks)

    monkeypatch.setattr(Supernet, "forward", noted)
    trained(planted, space, SupernetSchedule(largest_every=4))
    large = [
        Architecture(bottom=(), top=(32, 16), interaction=name, dims=(WIDE,) * 4, shares=(1.0,) * 4)
        for name in ("fm", "dot")
    ]
    assert seen[:16] == [None, None, None, large[0], None, None, None, large[1]] * 2
    seen.clear()
    trained(planted, space, SupernetSchedule(largest_every=0))
    assert not any(seen)


def likeliest(learned: Learned, space: SupernetSpace) -> list[int]:
    return [dims[int(np.argmax(learned.theta[f"dim_{table}"]))] for table, dims in enumerate(space.dims)]


def expected_cost(learned: Learned) -> float:
    cost = learned.rounds[-1].cost
    assert cost is not None
    return cost


def test_planted_widths_are_found_and_the_cost_falls_with_its_weight(planted: Dataset) -> None:
    space, schedule = planted_space(), SupernetSchedule(warmup_epochs=3, rounds=3)
    training, costs = trained(planted, space, schedule)
    assert not training.network.choices.theta.any(), "the warm-up leaves theta alone"
    free = training.learn(0.0, costs)
    assert likeliest(free, space)[:2] == [WIDE, WIDE], "what costs nothing is taken"
    before = {name: tensor.clone() for name, tensor in training.state().items()}
    weighed = training.learn(0.3, costs, theta_alone=True)
    after = training.state()
    assert all(torch.equal(after[name], before[name]) for name in before if name not in ("theta", "progress"))
    assert likeliest(weighed, space)[:2] == [NARROW, WIDE], "a table is as wide as what it tells"
    dear = training.learn(3.0, costs, theta_alone=True)
    assert likeliest(dear, space)[:2] == [NARROW, NARROW]
    assert expected_cost(free) > expected_cost(weighed) > expected_cost(dear)


def test_a_product_of_quality_and_cost_weighs_too(planted: Dataset) -> None:
    schedule = SupernetSchedule(warmup_epochs=1, rounds=1, form="multiplicative")
    training, costs = trained(planted, planted_space(), schedule)
    warm = {name: tensor.clone() for name, tensor in training.state().items()}
    free = training.learn(0.0, costs)
    training.restore(warm)
    assert expected_cost(training.learn(1.0, costs)) < expected_cost(free)


def test_a_sweep_goes_on_as_it_would_have(planted: Dataset) -> None:
    schedule = SupernetSchedule(warmup_epochs=1, rounds=1)
    training, costs = trained(planted, planted_space(), schedule)
    training.learn(0.0, costs)
    kept = {name: tensor.clone() for name, tensor in training.state().items()}
    expected = training.learn(0.1, costs)
    again, _ = trained(planted, planted_space(), schedule)
    again.restore(kept)
    assert again.learn(0.1, costs) == expected


def test_validation_rows_are_never_read(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=1_500)
    for split in ("validation", "test"):
        for path in tmp_path.glob(f"{split}.*"):
            path.unlink()
    space = replace(planted_space(), bottom=((4, 0),), top=((8, 0),), dims=((4, 16),) * 4)
    training, costs = trained(dataset, space, SupernetSchedule(rounds=1))
    assert len(training.learn(0.1, costs).rounds) == 1


def test_of_a_large_log_each_pass_takes_some_rows_and_each_other_ones(
    planted: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = SupernetSchedule(most_samples=10 * EXECUTION.batch_size, theta_steps=1, rounds=2)
    training, costs = trained(planted, planted_space(), schedule)
    taken: list[np.ndarray] = []
    read = BatchLoader.read

    def noted(self: BatchLoader, rows: np.ndarray) -> Batch:
        taken.append(rows)
        return read(self, rows)

    monkeypatch.setattr(BatchLoader, "read", noted)
    training.learn(0.0, costs)
    assert [len(rows) for rows in taken] == [EXECUTION.batch_size] * (8 + 2 + 8 + 2)
    theta = np.concatenate(taken[8:10] + taken[18:])
    assert held_out(theta, schedule.held_out_share, training.seed).all()
    assert not np.array_equal(np.sort(np.concatenate(taken[:8])), np.sort(np.concatenate(taken[10:18])))


def test_it_ends_when_told(planted: Dataset) -> None:
    training, costs = trained(planted, planted_space(), SupernetSchedule())
    asked = iter([None] * 70)  # past the pass of the weights, into that of theta
    learned = training.learn(0.0, costs, should_stop=lambda: next(asked, ENOUGH))
    assert learned.stop_reason == ENOUGH
    assert len(learned.rounds) == 1
    assert training.network.choices.theta.any()


@pytest.mark.parametrize("rows", [1, 3, 1_000, 50_000])
def test_each_row_is_learned_from_by_weights_or_theta(tmp_path: Path, rows: int) -> None:
    numbers = np.arange(rows)
    mask = held_out(numbers, 0.2, seed=5)
    assert np.array_equal(mask, held_out(numbers, 0.2, seed=5))
    assert abs(mask.sum() - 0.2 * rows) <= 2, "spread as evenly as can be"


def test_what_is_drawn_does_as_well_as_the_best_of_all(planted: Dataset) -> None:
    widths = (4, 8, 16)
    space = replace(planted_space(), dims=(widths, widths, (WIDE,), (WIDE,)))

    def validation_ne(a: int, b: int) -> float:
        spec = space.spec(
            Architecture(bottom=(), top=(), interaction="dot", dims=(a, b, WIDE, WIDE), shares=(1.0,) * 4)
        )
        return train(TrainingJob(planted, spec, RATES, EXECUTION, Schedule(max_epochs=4))).validation.ne

    every = {dims: validation_ne(*dims) for dims in product(widths, widths)}
    training, costs = trained(planted, space, SupernetSchedule(warmup_epochs=2, rounds=3))
    theta, generator = training.learn(0.0, costs).theta, torch.Generator().manual_seed(0)
    drawn = [training.network.coding.decode(draw(theta, generator)).dims[:2] for _ in range(3)]
    spread = max(every.values()) - min(every.values())
    assert spread > 0.02, "the widths matter"
    assert min(every[dims] for dims in drawn) <= min(every.values()) + 0.2 * spread  # pyright: ignore[reportArgumentType]
