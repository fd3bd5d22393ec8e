"""Several labels and weights of samples: batches, losses, training, evaluation, resuming."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score
from torch import nn

from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.batch import Targets, make_batch
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.loss import mean_losses, task_weights, weighted_sum
from shunter.engine.loop.trainer import train
from shunter.engine.probes.steps import time_steps
from shunter.engine.results import TrainResult
from shunter.errors import RequestError
from shunter.extensions.distributed.training.loader import BatchShare, ShareLoader
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features
from tests.engine.interruptions import interrupt_at
from tests.engine.several_labels import with_tasks, with_weights
from tests.engine.synthetic import write_dataset

SPEC = model_spec(embedding_dim=8, bottom_widths=(8,), top_widths=(16,))
EXECUTION = Execution(batch_size=97)
SCHEDULE = Schedule(max_epochs=2, seed=3)
RATES = Hyperparameters(dense_learning_rate=5e-3, embedding_learning_rate=0.1)


@pytest.fixture
def several(tmp_path: Path) -> Dataset:
    return with_weights(with_tasks(write_dataset(tmp_path / "data")))


def read_targets(dataset: Dataset, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Labels and weights by a way of their own."""
    labels = np.load(dataset.directory / f"{split}.label.npy")
    weights = np.load(dataset.directory / f"{split}.weight.npy")[:, None] * ~np.isnan(labels)
    return np.nan_to_num(labels), weights


def test_the_loss_is_the_weighted_mean_over_the_samples_that_have_the_label(several: Dataset) -> None:
    model = build_model(SPEC, several.features)
    labels, weights = read_targets(several, "train")
    loader = BatchLoader(several, "train", 97, shuffle=True, seed=1)
    for rows in list(loader.rows_of_batches())[:3]:
        batch = loader.read(rows)
        logits = model(*batch.inputs)
        losses = mean_losses(logits, batch.labels, batch.shares)
        for task in range(2):
            one = nn.functional.binary_cross_entropy_with_logits(
                logits[:, task].double(), torch.from_numpy(labels[rows, task]).double(), reduction="none"
            )
            expected = (one * torch.from_numpy(weights[rows, task])).sum() / weights[rows, task].sum()
            assert losses[task].item() == pytest.approx(expected.item(), rel=1e-5)
        assert batch.totals == pytest.approx(weights[rows].sum(0))


def test_processes_share_out_the_whole_batchs_mean(several: Dataset) -> None:
    model = build_model(SPEC, several.features)
    whole = BatchLoader(several, "train", 97, shuffle=True, seed=1)
    parts = [ShareLoader(rank, 3, several, "train", 97, shuffle=True, seed=1) for rank in range(3)]
    rows = next(iter(whole.rows_of_batches()))
    batch = whole.read(rows)
    expected = mean_losses(model(*batch.inputs), batch.labels, batch.shares)
    summed = torch.zeros(2)
    for loader in parts:
        batch = loader.read(rows)
        assert isinstance(batch, BatchShare)
        assert batch.shares is not None
        own = slice(batch.own)
        summed += mean_losses(model(*batch.inputs)[own], batch.labels[own], batch.shares[own]).detach()
        assert batch.totals == whole.read(rows).totals
    torch.testing.assert_close(summed, expected.detach())


def test_a_batch_without_any_label_of_a_task_has_no_loss_and_no_gradient() -> None:
    targets = Targets.of(np.array([[1, np.nan], [0, np.nan]], dtype=np.float32))
    assert targets.totals() == (2.0, 0.0)
    field = CategoricalFeature(name="c", rows=3)
    features = Features(dense=(), categorical=(field,), tasks=("click", "like"))
    batch = make_batch(
        features,
        dense=None,
        categorical=np.zeros((2, 1), dtype=np.int32),
        labels=targets.labels,
        shares=np.array([[0.5, 0], [0.5, 0]], dtype=np.float32),
        totals=(2.0, 0.0),
    )
    logits = torch.tensor([[0.3, 5.0], [-0.2, -7.0]], requires_grad=True)
    losses = mean_losses(logits, batch.labels, batch.shares)
    weighted_sum(losses, None).backward()
    assert losses[1] == 0
    assert logits.grad is not None
    assert logits.grad[:, 0].all()
    assert not logits.grad[:, 1].any()


def test_both_tasks_are_learned_and_judged_as_scikit_learn_judges(several: Dataset) -> None:
    result = train(TrainingJob(several, SPEC, RATES, EXECUTION, SCHEDULE))
    found = evaluate(result.model, several, "test", EXECUTION)
    labels, weights = read_targets(several, "test")
    assert found.logits.shape == labels.shape
    for task, metrics in enumerate((found.metrics, found.metrics.others["conversion"])):
        one = labels[:, task], 1 / (1 + np.exp(-found.logits[:, task].astype(np.float64)))
        assert metrics.auc == pytest.approx(roc_auc_score(*one, sample_weight=weights[:, task]), abs=1e-12)
        assert metrics.logloss == pytest.approx(log_loss(*one, sample_weight=weights[:, task]), rel=1e-9)
        assert metrics.ne < 1, "nothing was learned"
        assert all(map(np.array_equal, found.of_task(task)[:2], (labels[:, task], found.logits[:, task])))
    report = result.history[0]
    assert set(report.other_train_loglosses) == {"conversion"}
    assert 0 < report.other_train_loglosses["conversion"] < 2
    assert type(report).from_dict(report.to_dict()) == report


def test_the_main_task_alone_chooses_the_epoch(several: Dataset) -> None:
    result = train(TrainingJob(several, SPEC, RATES, EXECUTION, replace(SCHEDULE, max_epochs=4)))
    assert result.best_epoch == min(result.history, key=lambda report: report.validation.ne).epoch


def test_weights_of_one_are_no_weights(tmp_path: Path) -> None:
    plain = write_dataset(tmp_path / "data")
    for split, part in plain.splits.items():
        np.save(plain.directory / f"{split}.weight.npy", np.ones(part.rows, dtype=np.float32))
    results = [
        train(TrainingJob(one, SPEC, RATES, EXECUTION, SCHEDULE)) for one in (plain, replace(plain, is_weighted=True))
    ]
    first, second = (result.history[-1] for result in results)
    assert second.train_logloss == pytest.approx(first.train_logloss, abs=1e-5)
    assert second.validation.auc == pytest.approx(first.validation.auc, abs=1e-4)
    assert second.validation.rows == first.validation.rows


def test_whole_weights_are_so_many_copies_of_a_sample(tmp_path: Path) -> None:
    plain = write_dataset(tmp_path / "data", rows=600, bags=0)
    counts = np.random.default_rng(0).integers(0, 4, plain.splits["validation"].rows)
    np.save(plain.directory / "validation.weight.npy", counts.astype(np.float32))
    model = build_model(SPEC, plain.features, seed=4)
    weighted = evaluate(model, replace(plain, is_weighted=True), "validation", EXECUTION).metrics
    copies = write_dataset(tmp_path / "copies", rows=600, bags=0)
    for name in ("label", "dense", "categorical"):
        path = copies.directory / f"validation.{name}.npy"
        np.save(path, np.load(path).repeat(counts, axis=0))
    splits = {**copies.splits, "validation": replace(copies.splits["validation"], rows=int(counts.sum()))}
    repeated = evaluate(model, replace(copies, splits=splits), "validation", EXECUTION).metrics
    for name in ("auc", "logloss", "ne", "calibration", "base_rate"):
        assert getattr(weighted, name) == pytest.approx(getattr(repeated, name), rel=1e-6), name


def test_a_task_of_weight_zero_leaves_the_main_one_as_if_alone(tmp_path: Path) -> None:
    several = with_tasks(write_dataset(tmp_path / "data"), missing_share=0.0)
    alone = train(TrainingJob(several, SPEC, replace(RATES, task_weights=(1.0, 0.0)), EXECUTION, SCHEDULE))
    both = train(TrainingJob(several, SPEC, RATES, EXECUTION, SCHEDULE))
    equal = train(TrainingJob(several, SPEC, replace(RATES, task_weights=(1.0, 1.0)), EXECUTION, SCHEDULE))
    assert alone.history[-1].validation.others["conversion"].ne > both.history[-1].validation.others["conversion"].ne
    assert equal.history[-1].validation.ne == pytest.approx(both.history[-1].validation.ne, abs=1e-6)


@pytest.mark.parametrize("stop_at", [5, 15, 19])
def test_an_interrupted_training_goes_on_bit_by_bit(several: Dataset, tmp_path: Path, stop_at: int) -> None:
    spec = replace(SPEC, task_tower_width=4)
    rates = replace(RATES, task_weights=(1.0, 0.3))
    expected = train(TrainingJob(several, spec, rates, EXECUTION, SCHEDULE))

    def go_on(on_step: Callable[[int, int], None] | None = None) -> TrainResult:
        return train(
            TrainingJob(several, spec, rates, EXECUTION, SCHEDULE),
            Hooks(on_step=on_step),
            Checkpointing(tmp_path / "checkpoint"),
        )

    with pytest.raises(KeyboardInterrupt):
        go_on(interrupt_at(stop_at))
    result = go_on()
    for mine, theirs in zip(result.history, expected.history, strict=True):
        assert mine.validation == theirs.validation
        assert mine.train_logloss == theirs.train_logloss
        assert mine.other_train_loglosses == theirs.other_train_loglosses
    for name, weight in expected.model.state_dict().items():
        assert torch.equal(result.model.state_dict()[name], weight), name


def test_the_probe_trains_on_several_labels(several: Dataset) -> None:
    timing = time_steps(several, SPEC, RATES, EXECUTION, steps=2, warmup_steps=1)
    assert timing.steps == 2


@pytest.mark.parametrize("weights", [(1.0,), (1.0, -1.0), (0.0, 1.0), (1.0, 1.0, 1.0)])
def test_task_weights_that_do_not_suit_are_refused(weights: tuple[float, ...]) -> None:
    with pytest.raises(RequestError, match="do not suit the 2 labels"):
        task_weights(weights, ("click", "conversion"), "cpu")


def test_a_data_set_without_weights_and_tasks_is_described_as_ever(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data", rows=200)
    assert "tasks" not in dataset.features.to_dict()
    assert "task_weights" not in RATES.to_dict()
    values = dataset.to_dict()
    del values["is_weighted"]
    for split in values["splits"].values():
        del split["others"]
    (dataset.directory / "dataset.json").write_text(json.dumps(values))
    assert Dataset.load(dataset.directory) == dataset


def test_no_row_that_counts_has_no_quality(tmp_path: Path) -> None:
    several = with_tasks(write_dataset(tmp_path / "data", rows=300), missing_share=1.0)
    found = evaluate(build_model(SPEC, several.features), several, "test", EXECUTION).metrics
    assert math.isfinite(found.auc)
    assert found.others["conversion"].rows == 0
    assert math.isnan(found.others["conversion"].logloss)
