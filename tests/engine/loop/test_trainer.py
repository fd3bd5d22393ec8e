"""Learning, early stopping, budgets, and endings of every kind."""

import json
import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Hooks, TrainingJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.trainer import train
from shunter.engine.results import EpochReport, TrainResult
from shunter.engine.stopping import StopKind
from shunter.errors import DataError, HardwareError, RequestError, TrainingError
from shunter.models.embeddings import kernel_choice
from shunter.models.embeddings.native_kernel import NativeEmbeddings
from shunter.models.embeddings.torch_kernel import TorchEmbeddings
from shunter.models.number_bins import NumberBins
from shunter.models.registry import model_spec
from tests.engine.parts import parts_of
from tests.engine.reasons import ENOUGH
from tests.engine.synthetic import write_dataset
from tests.models.kernels import KERNELS

SPEC = model_spec(embedding_dim=8, bottom_widths=(8,), top_widths=(16,), dropout=0.2)
HYPERPARAMETERS = Hyperparameters(dense_learning_rate=5e-3, embedding_learning_rate=0.1)
EXECUTION = Execution(threads=1, batch_size=64)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=3_000)


def train_on(dataset: Dataset, **changes: Any) -> TrainResult:
    arguments = {
        "spec": SPEC,
        "hyperparameters": HYPERPARAMETERS,
        "execution": EXECUTION,
        "schedule": Schedule(max_epochs=3, patience=2, seed=1),
    }
    return train(*parts_of(dataset, **{**arguments, **changes}))  # type: ignore[arg-type]


def weights_of(result: TrainResult) -> list[torch.Tensor]:
    return list(result.model.state_dict().values())


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "sgd", "shampoo"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_optimizer_and_precision_learns(dataset: Dataset, optimizer: str, precision: str) -> None:
    rates = {"adam": 5e-3, "adagrad": 0.05, "sgd": 0.1, "shampoo": 5e-3}
    result = train_on(
        dataset,
        hyperparameters=Hyperparameters(
            dense_optimizer=optimizer,  # type: ignore[arg-type]
            dense_learning_rate=rates[optimizer],
            embedding_learning_rate=0.1,
            weight_decay=1e-5,
        ),
        execution=Execution(threads=1, batch_size=64, precision=precision),  # type: ignore[arg-type]
    )
    assert result.validation.ne < 0.8
    assert result.validation.auc > 0.8


@pytest.mark.skipif("native" not in KERNELS, reason="the kernels were not compiled here")
def test_a_model_without_the_native_kernel_learns_the_same(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    native = train_on(dataset)
    monkeypatch.setattr(kernel_choice, "library", lambda: None)
    plain = train_on(dataset)
    assert [type(one.model.embeddings) for one in (native, plain)] == [NativeEmbeddings, TorchEmbeddings]
    assert plain.validation.ne == pytest.approx(native.validation.ne, abs=1e-4)


def test_the_report_adds_up(dataset: Dataset) -> None:
    steps = []
    result = train_on(dataset, on_step=lambda step, total: steps.append((step, total)))
    per_epoch = math.ceil(2_100 / 64)
    assert [report.epoch for report in result.history] == [1, 2, 3]
    assert [report.step for report in result.history] == [per_epoch, 2 * per_epoch, 3 * per_epoch]
    assert steps == [(step, 3 * per_epoch) for step in range(1, 3 * per_epoch + 1)]
    assert result.samples_seen == 3 * 2_100
    assert result.stop_reason.kind is StopKind.MAX_EPOCHS
    assert result.train_seconds > result.compute_seconds > 0
    assert result.samples_per_second > 0
    assert result.peak_memory_bytes > 10 * 2**20
    assert result.history[-1].train_logloss < result.history[0].train_logloss


def test_the_best_weights_come_back(dataset: Dataset, tmp_path: Path) -> None:
    overfitting = {
        "hyperparameters": Hyperparameters(dense_learning_rate=0.05, embedding_learning_rate=0.5),
        "schedule": Schedule(max_epochs=12, patience=2),
    }
    for directory in (None, tmp_path / "checkpoint"):
        result = train_on(dataset, checkpoint_directory=directory, **overfitting)
        assert result.stop_reason.kind is StopKind.PATIENCE
        assert len(result.history) == result.best_epoch + 2
        assert result.validation.ne == min(report.validation.ne for report in result.history)
        assert evaluate(result.model, dataset, "validation", EXECUTION).metrics == result.validation


def test_the_same_seed_gives_the_same_model_and_another_seed_another(dataset: Dataset) -> None:
    one, same, other = (train_on(dataset, schedule=Schedule(max_epochs=1, seed=seed)) for seed in (1, 1, 2))
    assert all(map(torch.equal, weights_of(one), weights_of(same)))
    assert not any(map(torch.equal, weights_of(one), weights_of(other)))


def test_checkpoints_and_prefetch_depth_do_not_change_the_result(dataset: Dataset, tmp_path: Path) -> None:
    plain = train_on(dataset)
    deep = train_on(
        dataset,
        execution=Execution(threads=1, batch_size=64, prefetch_depth=7),
        checkpoint_directory=tmp_path,
        checkpoint_steps=5,
    )
    assert all(map(torch.equal, weights_of(plain), weights_of(deep)))
    assert [r.train_logloss for r in plain.history] == [r.train_logloss for r in deep.history]


def test_threads_and_random_state_are_given_back(dataset: Dataset) -> None:
    torch.manual_seed(7)
    threads, random_state = torch.get_num_threads(), torch.get_rng_state()
    train_on(dataset, execution=Execution(threads=threads + 1, batch_size=512), schedule=Schedule(max_epochs=1))
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), random_state)


def test_a_budget_ends_the_training_with_what_there_is(dataset: Dataset) -> None:
    seen = []
    result = train_on(
        dataset, on_step=lambda step, _: seen.append(step), should_stop=lambda: ENOUGH if len(seen) >= 10 else None
    )
    assert result.stop_reason == ENOUGH
    assert seen == list(range(1, 11))
    assert [report.step for report in result.history] == [10]
    assert evaluate(result.model, dataset, "validation", EXECUTION).metrics == result.validation


def test_checks_within_epochs_are_reported_and_change_nothing(dataset: Dataset) -> None:
    seen: list[EpochReport] = []
    schedule = Schedule(max_epochs=2, seed=1, checks=(1 / 9, 1 / 3, 1, 1.5))
    checked = train_on(dataset, schedule=schedule, on_epoch=seen.append)
    plain = train_on(dataset, schedule=Schedule(max_epochs=2, seed=1))
    per_epoch = math.ceil(2_100 / 64)
    assert [report.step for report in seen] == [4, 11, per_epoch, round(1.5 * per_epoch), 2 * per_epoch]
    assert [report.is_check for report in seen] == [True, True, False, True, False]
    assert [report.epoch for report in seen] == [1, 1, 1, 2, 2]
    assert seen[1].samples_seen == 11 * 64
    assert checked.history == tuple(report for report in seen if not report.is_check)
    assert all(map(torch.equal, weights_of(checked), weights_of(plain)))
    assert [report.train_logloss for report in checked.history] == [report.train_logloss for report in plain.history]


def test_a_check_may_end_the_training(dataset: Dataset) -> None:
    def stop(report: EpochReport) -> None:
        if report.is_check:
            raise ValueError("worse than the others")

    with pytest.raises(ValueError, match="worse"):
        train_on(dataset, schedule=Schedule(max_epochs=2, checks=(0.5,)), on_epoch=stop)


def test_a_check_without_a_length_is_refused(dataset: Dataset) -> None:
    with pytest.raises(RequestError, match="must all be above 0"):
        train_on(dataset, schedule=Schedule(checks=(-0.5,)))


def test_bins_lie_between_the_quantiles_of_the_training_part_and_stay_where_they_were(
    dataset: Dataset, tmp_path: Path
) -> None:
    result = train_on(dataset, spec=model_spec(numeric_bins=2))
    numbers = np.load(dataset.directory / "train.dense.npy")
    (cut,) = (part for part in result.model.layers.modules() if isinstance(part, NumberBins))
    middle = torch.from_numpy(np.median(numbers, axis=0, keepdims=True))
    torch.testing.assert_close(cut.shares(middle)[0].double(), torch.tensor([[1.0, 0.0]] * numbers.shape[1]).double())
    save_model(result.model, tmp_path)
    assert torch.equal(load_model(tmp_path).state_dict()["layers.bottom.0.slopes"], cut.slopes)


def test_a_larger_budget_goes_on_to_the_undisturbed_result(dataset: Dataset, tmp_path: Path) -> None:
    undisturbed = train_on(dataset)
    steps = []
    train_on(
        dataset,
        checkpoint_directory=tmp_path,
        on_step=lambda step, _: steps.append(step),
        should_stop=lambda: ENOUGH if len(steps) >= 40 else None,
    )
    resumed = train_on(dataset, checkpoint_directory=tmp_path, on_step=lambda step, _: steps.append(step))
    assert steps == list(range(1, undisturbed.history[-1].step + 1))
    assert all(map(torch.equal, weights_of(undisturbed), weights_of(resumed)))
    assert [r.validation for r in undisturbed.history] == [r.validation for r in resumed.history]


class PrunedError(Exception):
    """What a search raises to end a hopeless training."""


def test_an_exception_of_a_callback_reaches_the_caller_and_ends_the_threads(dataset: Dataset) -> None:
    def prune(report: EpochReport) -> None:
        raise PrunedError(report.epoch)

    threads = torch.get_num_threads()
    with pytest.raises(PrunedError, match="1"):
        train_on(dataset, on_epoch=prune)
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch"]
    assert torch.get_num_threads() == threads


@pytest.fixture
def broken_dataset(tmp_path: Path) -> Dataset:
    """A data set with one dense value that is no number."""
    dataset = write_dataset(tmp_path / "broken", rows=3_000)
    path = tmp_path / "broken" / "train.dense.npy"
    dense = np.load(path)
    dense[1_234] = math.nan
    np.save(path, dense)
    return dataset


def test_a_loss_that_is_no_number_names_its_step_and_keeps_the_last_checkpoint(
    broken_dataset: Dataset, tmp_path: Path
) -> None:
    steps: list[int] = []
    directory = tmp_path / "checkpoint"
    arguments = {"checkpoint_directory": directory, "checkpoint_steps": 1}
    with pytest.raises(TrainingError) as first:
        train_on(broken_dataset, on_step=lambda step, _: steps.append(step), **arguments)
    assert f"The training loss of step {steps[-1] + 1} is nan" in str(first.value)
    assert "last good checkpoint" in str(first.value)
    kept = json.loads((directory / "checkpoint.json").read_text())["state"]["step"]
    assert 0 < kept <= steps[-1]
    resumed_steps: list[int] = []
    with pytest.raises(TrainingError) as second:
        train_on(broken_dataset, on_step=lambda step, _: resumed_steps.append(step), **arguments)
    assert str(second.value) == str(first.value)
    assert resumed_steps == steps[kept:]


def test_an_exploding_training_is_stopped(dataset: Dataset) -> None:
    with pytest.raises(TrainingError, match="lower the learning rates"):
        train_on(dataset, hyperparameters=Hyperparameters(dense_optimizer="sgd", dense_learning_rate=1e30))


def test_a_batch_larger_than_the_data_is_refused(dataset: Dataset) -> None:
    with pytest.raises(RequestError, match="4096"):
        train_on(dataset, execution=Execution(batch_size=4_096))


@pytest.mark.parametrize("schedule", [Schedule(max_epochs=0), Schedule(patience=0)])
def test_a_schedule_without_an_epoch_is_refused(dataset: Dataset, schedule: Schedule) -> None:
    with pytest.raises(RequestError, match="at least one epoch"):
        train_on(dataset, schedule=schedule)


def test_a_validation_part_with_one_class_is_refused(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=200)
    np.save(tmp_path / "validation.label.npy", np.zeros(30, np.float32))
    statistics = dataset.splits["validation"]
    dataset.splits["validation"] = type(statistics)(rows=30, positives=0)
    with pytest.raises(DataError, match="are equal, so quality cannot be measured"):
        train_on(dataset)


@pytest.mark.parametrize("device", ["cuda:99", "meta"])
def test_a_device_that_is_not_there_is_named(dataset: Dataset, device: str) -> None:
    with pytest.raises(HardwareError, match=device):
        train_on(dataset, execution=Execution(device=device, batch_size=64))


@pytest.mark.parametrize(("dense", "single", "bags"), [(0, 2, 0), (0, 0, 1)])
def test_data_without_dense_features_is_learned(tmp_path: Path, dense: int, single: int, bags: int) -> None:
    dataset = write_dataset(tmp_path, rows=3_000, dense=dense, single=single, bags=bags)
    assert train_on(dataset).validation.ne < 0.95


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_learns_what_the_cpu_learns(dataset: Dataset) -> None:
    gpu = train_on(dataset, execution=Execution(device="cuda:0", batch_size=64))
    assert gpu.validation.ne == pytest.approx(train_on(dataset).validation.ne, abs=0.02)


def test_adapt_is_told_the_time_of_each_step_and_sets_the_threads_of_the_next(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data", rows=2_000)
    told: list[tuple[float, int]] = []

    def adapt(seconds: float) -> int:
        told.append((seconds, torch.get_num_threads()))
        return 1 + len(told) % 2

    before = torch.get_num_threads()
    execution = Execution(batch_size=100, threads=2)
    result = train(
        TrainingJob(dataset, model_spec(), Hyperparameters(), execution, Schedule(max_epochs=2)), Hooks(adapt=adapt)
    )
    assert len(told) == 28
    assert [threads for _, threads in told] == [2, *(1 + number % 2 for number in range(1, 28))]
    assert sum(seconds for seconds, _ in told) == pytest.approx(result.compute_seconds + result.wait_seconds)
    assert torch.get_num_threads() == before
    plain = train(TrainingJob(dataset, model_spec(), Hyperparameters(), execution, Schedule(max_epochs=2)))
    assert result.validation.logloss == pytest.approx(plain.validation.logloss, rel=1e-3), "equal but for rounding"
