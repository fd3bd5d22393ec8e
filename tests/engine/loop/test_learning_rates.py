"""Learning rates that change: the same in every kernel, compiled or not, killed or not, and none where constant."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shunter.engine.config import Execution, Hyperparameters, LearningRateSchedule, Schedule, SelectBy
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.optimizers import LOWEST_SHARE, LearningRates
from shunter.engine.loop.step import build_dense_optimizer
from shunter.engine.loop.trainer import train
from shunter.engine.results import TrainResult
from shunter.engine.stopping import StopKind
from shunter.errors import CheckpointError, RequestError
from shunter.models.registry import build_model, model_spec
from tests.engine.interruptions import assert_same_weights, interrupt_at
from tests.engine.synthetic import write_dataset

SPEC = model_spec(embedding_dim=8, bottom_widths=(8,), top_widths=(16,), dropout=0.3)
EXECUTION = Execution(threads=1, batch_size=64)
SCHEDULE = Schedule(max_epochs=5, patience=3, seed=3)
CONSTANT = Hyperparameters(dense_learning_rate=0.02, embedding_learning_rate=0.3)
PLATEAU = replace(CONSTANT, learning_rate_schedule="plateau", plateau_factor=0.3, warmup_epochs=0.5)
COSINE = replace(CONSTANT, learning_rate_schedule="cosine", warmup_epochs=0.5)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=1_500)


def trained(dataset: Dataset, rates: Hyperparameters, execution: Execution = EXECUTION) -> TrainResult:
    return train(TrainingJob(dataset, SPEC, rates, execution, SCHEDULE))


def rates_of(result: TrainResult) -> list[float]:
    return [report.learning_rates["dense"] for report in result.history]


def shares(rates: Hyperparameters, dataset: Dataset, epoch_steps: int = 10) -> LearningRates:
    model = build_model(SPEC, dataset.features)
    optimizer = build_dense_optimizer(model, rates)
    return LearningRates(rates, optimizer, model.embeddings, epoch_steps=epoch_steps, max_epochs=SCHEDULE.max_epochs)


def test_a_plateau_lowers_both_rates_by_its_factor_after_each_epoch_without_gain(dataset: Dataset) -> None:
    result = trained(dataset, replace(PLATEAU, warmup_epochs=0.0))
    lowest, expected, plateaus = math.inf, [], 0
    for report in result.history:
        expected.append(0.3**plateaus)
        plateaus += report.validation.ne >= lowest
        lowest = min(lowest, report.validation.ne)
    assert plateaus > 0
    assert rates_of(result) == pytest.approx([0.02 * share for share in expected])
    assert [report.learning_rates["embedding"] for report in result.history] == pytest.approx(
        [0.3 * share for share in expected]
    )


@pytest.mark.parametrize("select_by", ["ne", "auc", "logloss"])
def test_the_figure_that_selects_keeps_the_epoch_and_begins_the_plateaus(dataset: Dataset, select_by: SelectBy) -> None:
    rates = replace(PLATEAU, warmup_epochs=0.0, embedding_learning_rate=1.0)
    schedule = replace(SCHEDULE, max_epochs=6, patience=6, select_by=select_by)
    result = train(TrainingJob(dataset, SPEC, rates, EXECUTION, schedule))
    losses = [report.validation.loss_by(select_by) for report in result.history]
    assert result.best_epoch == 1 + losses.index(min(losses))
    assert result.validation.loss_by(select_by) == min(losses)
    plateaus = sum(loss >= min(losses[:epoch]) for epoch, loss in enumerate(losses[:-1]) if epoch)
    assert rates_of(result)[-1] == pytest.approx(0.02 * max(0.3**plateaus, LOWEST_SHARE))


def test_a_cosine_may_end_a_training_before_its_schedule_does(dataset: Dataset) -> None:
    ended, total = [], set[int]()
    hooks = Hooks(on_step=lambda done, steps: total.add(steps))
    for rates, schedule in (
        (replace(COSINE, cosine_epochs=2), SCHEDULE),
        (replace(COSINE, cosine_epochs=9), replace(SCHEDULE, max_epochs=2)),
        (COSINE, replace(SCHEDULE, max_epochs=2)),
    ):
        result = train(TrainingJob(dataset, SPEC, rates, EXECUTION, schedule), hooks)
        ended.append(result)
        assert (len(result.history), result.stop_reason.kind) == (2, StopKind.MAX_EPOCHS)
    assert len(total) == 1, "and the steps that are left are known"
    for name, weights in ended[0].model.state_dict().items():
        assert torch.equal(weights, ended[1].model.state_dict()[name])
        assert torch.equal(weights, ended[2].model.state_dict()[name])
    plateau = trained(dataset, replace(PLATEAU, cosine_epochs=1))
    assert len(plateau.history) > 1


def test_a_cosine_ends_at_nothing_and_is_halfway_down_in_the_middle(dataset: Dataset) -> None:
    rates = shares(replace(COSINE, warmup_epochs=0.0), dataset)
    assert [rates.share(step, 0) for step in (0, 25, 50)] == pytest.approx([1.0, 0.5, 0.0], abs=1e-12)


@given(step=st.integers(0, 60), plateaus=st.integers(0, 9), kind=st.sampled_from(["constant", "plateau", "cosine"]))
def test_a_share_lies_between_nothing_and_all_and_warms_up_in_a_line(
    step: int, plateaus: int, kind: LearningRateSchedule, dataset: Dataset
) -> None:
    warm, cold = (
        shares(replace(PLATEAU, learning_rate_schedule=kind, warmup_epochs=epochs), dataset).share(step, plateaus)
        for epochs in (0.5, 0.0)
    )
    assert 0 <= cold <= 1
    assert kind != "plateau" or cold >= LOWEST_SHARE
    assert warm == pytest.approx(cold * min(1.0, (step + 1) / 5))


def test_a_share_of_one_changes_no_bit(dataset: Dataset) -> None:
    """A plateau that never comes is a constant rate: only a change is applied."""
    never = replace(CONSTANT, learning_rate_schedule="plateau", dense_learning_rate=1e-4, embedding_learning_rate=1e-3)
    constant = replace(never, learning_rate_schedule="constant")
    one, other = trained(dataset, never), trained(dataset, constant)
    assert len(set(rates_of(one))) == 1
    assert_same_weights(one, other)


def test_a_rate_that_falls_learns_something_else(dataset: Dataset) -> None:
    assert trained(dataset, COSINE).history[-1].validation != trained(dataset, CONSTANT).history[-1].validation


@pytest.mark.parametrize("rates", [PLATEAU, COSINE], ids=["plateau", "cosine"])
@pytest.mark.parametrize("optimizer", ["adam", "shampoo"])
def test_killed_in_and_after_every_epoch_the_result_is_bitwise_the_same(
    dataset: Dataset, tmp_path: Path, rates: Hyperparameters, optimizer: str
) -> None:
    rates = replace(rates, dense_optimizer=optimizer)  # type: ignore[arg-type]
    job = TrainingJob(dataset, SPEC, rates, EXECUTION, SCHEDULE)
    expected = train(job)
    assert len(set(rates_of(expected))) > 1
    epoch_steps = expected.history[0].step
    last = expected.history[-1].step
    for stop in [step for step in range(5, last, epoch_steps // 2) if step < last]:
        with pytest.raises(KeyboardInterrupt):
            train(job, Hooks(on_step=interrupt_at(stop)), Checkpointing(tmp_path))
    result = train(job, checkpointing=Checkpointing(tmp_path))
    assert rates_of(result) == rates_of(expected)
    assert [report.validation for report in result.history] == [report.validation for report in expected.history]
    assert_same_weights(result, expected)


def test_a_checkpoint_selected_by_another_figure_is_another_training(dataset: Dataset, tmp_path: Path) -> None:
    by_auc = replace(SCHEDULE, max_epochs=1, select_by="auc")
    train(TrainingJob(dataset, SPEC, CONSTANT, EXECUTION, by_auc), checkpointing=Checkpointing(tmp_path))
    with pytest.raises(CheckpointError, match="selected by"):
        train(TrainingJob(dataset, SPEC, CONSTANT, EXECUTION, SCHEDULE), checkpointing=Checkpointing(tmp_path))


def test_a_cosine_of_another_length_is_another_training(dataset: Dataset, tmp_path: Path) -> None:
    shorter = replace(SCHEDULE, max_epochs=1)
    train(TrainingJob(dataset, SPEC, COSINE, EXECUTION, shorter), checkpointing=Checkpointing(tmp_path))
    with pytest.raises(CheckpointError, match="max epochs"):
        train(TrainingJob(dataset, SPEC, COSINE, EXECUTION, SCHEDULE), checkpointing=Checkpointing(tmp_path))


@pytest.mark.long
@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "sgd"])
def test_compiled_the_rates_change_without_compiling_again(dataset: Dataset, optimizer: str) -> None:
    rates = replace(PLATEAU, dense_optimizer=optimizer, dense_learning_rate=2e-3)  # type: ignore[arg-type]
    spec = replace(SPEC, dropout=0.0)
    eager = train(TrainingJob(dataset, spec, rates, EXECUTION, SCHEDULE))
    torch._dynamo.utils.counters.clear()
    compiled = train(TrainingJob(dataset, spec, rates, replace(EXECUTION, compiled=True), SCHEDULE))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 1
    assert rates_of(compiled) == rates_of(eager)
    for one, two in zip(compiled.history, eager.history, strict=True):
        assert one.validation.logloss == pytest.approx(two.validation.logloss, abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rate_schedule": "plato"}, "Unknown learning_rate_schedule 'plato'"),
        ({"plateau_factor": 1.0}, "plateau_factor is 1"),
        ({"warmup_epochs": -1.0}, "warmup_epochs, is -1"),
        ({"cosine_epochs": 0}, "cosine_epochs, is 0"),
    ],
)
def test_what_is_no_schedule_is_refused(dataset: Dataset, changes: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        trained(dataset, replace(CONSTANT, **changes))  # type: ignore[arg-type]


@given(cycles=st.integers(1, 5), step=st.integers(0, 499))
def test_each_cycle_is_a_whole_cosine(cycles: int, step: int) -> None:
    """All begin at the full rates and fall to nothing, and between it is the same cosine each time."""
    rates = replace(CONSTANT, learning_rate_schedule="cosine", cycles=cycles)
    share = _without_model(rates).share(step, 0)
    of_cycle = 500 / cycles
    assert share == pytest.approx((1 + math.cos(math.pi * (step % of_cycle) / of_cycle)) / 2)
    if cycles > 1:
        assert _without_model(rates).share(math.ceil(of_cycle), 0) > 0.99


def _without_model(rates: Hyperparameters) -> LearningRates:
    nothing: Any = None
    return LearningRates(rates, nothing, nothing, epoch_steps=100, max_epochs=5)
