"""The step on real members: trained, combined, saved, scored once, tracked."""

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from torch import nn

from shunter.engine.checkpoint.scoring import load_to_score
from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.ensemble.serving_cost import ServingCost, ServingLimits
from shunter.engine.execution import execution_of
from shunter.engine.job import TrainingJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.metrics import compute_metrics
from shunter.engine.trained_model import TrainedModel
from shunter.hardware.types import Placement
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model, model_spec
from shunter.requests import TrainRequest
from shunter.tasks.ensemble import EnsembleLimits, combine, combine_members
from shunter.tasks.train import train_model
from shunter.tracking.history import tracked_run
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri
from tests.engine.synthetic import write_dataset

PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=2_000)


@pytest.fixture(scope="module")
def members(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> list[TrainedModel]:
    return [
        train_model(
            TrainingJob(
                dataset,
                model_spec(embedding_dim=4, bottom_widths=(8,), top_widths=(8,)),
                Hyperparameters(dense_learning_rate=0.01, embedding_learning_rate=0.1),
                execution_of(PLACEMENT),
                Schedule(max_epochs=2, seed=seed),
            ),
            PLACEMENT,
            tmp_path_factory.mktemp(f"member-{seed}"),
            name=f"member-{seed}",
        )
        for seed in range(3)
    ]


@pytest.fixture
def parent(tracking_root: Path, dataset: Dataset) -> str:
    return start_run_tree(TrainRequest(), dataset)


def test_result_is_what_was_saved_and_its_test_figures_are_those_of_the_files(
    dataset: Dataset, members: list[TrainedModel], parent: str, tmp_path: Path
) -> None:
    result = combine_members(dataset, members, PLACEMENT, tmp_path / "final", parent_run_id=parent)
    model = load_model(tmp_path / "final")
    execution = execution_of(PLACEMENT)
    assert evaluate(model, dataset, "test", execution).metrics == result.test
    assert evaluate(model, dataset, "validation", execution).metrics.ne == pytest.approx(result.validation.ne, abs=1e-5)
    assert (result.kept == "ensemble") == isinstance(model, Ensemble)
    assert sum(member.weight for member in result.members) == pytest.approx(1)
    assert result.judged_ensemble is not None
    assert result.judged_single is not None
    assert (result.kept == "ensemble") == (result.judged_ensemble.ne < result.judged_single.ne)
    assert f"{result.judged_ensemble.ne:.4f} against {result.judged_single.ne:.4f}" in result.reason


def test_one_member_is_in_memory_at_a_time(
    dataset: Dataset, members: list[TrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[weakref.ref[Model | Ensemble]] = []
    alive: list[int] = []

    def load(directory: Path, execution: Execution) -> Model | Ensemble:
        gc.collect()
        alive.append(sum(one() is not None for one in loaded))
        model = load_to_score(directory, execution)
        loaded.append(weakref.ref(model))
        return model

    monkeypatch.setattr(combine, "load_to_score", load)
    assert len(combine.Combining(dataset, members, PLACEMENT).scored) == len(members)
    assert alive == [0] * len(members)


def test_ensemble_is_saved_with_its_weights(
    dataset: Dataset, members: list[TrainedModel], parent: str, tmp_path: Path
) -> None:
    """These members differ by their seeds alone, so that their mean is better than each; else this would be vacuous."""
    result = combine_members(dataset, members, PLACEMENT, tmp_path / "final", parent_run_id=parent)
    assert result.kept == "ensemble"
    execution = execution_of(PLACEMENT)
    logits = np.stack([evaluate(load_model(member.directory), dataset, "test", execution).logits for member in members])
    labels = evaluate(load_model(tmp_path / "final"), dataset, "test", execution).labels
    weights = np.array([member.weight for member in result.members])
    assert result.test.logloss == pytest.approx(compute_metrics(labels, weights @ logits).logloss, abs=1e-5)


def test_single_member_is_the_result(
    dataset: Dataset, members: list[TrainedModel], parent: str, tmp_path: Path
) -> None:
    result = combine_members(dataset, members[:1], PLACEMENT, tmp_path / "final", parent_run_id=parent)
    assert result.kept == "single"
    assert result.judged_ensemble is None
    assert result.validation.ne == pytest.approx(members[0].validation.ne, abs=1e-6)


def test_a_single_that_is_too_sure_is_saved_with_its_scale(
    dataset: Dataset, members: list[TrainedModel], parent: str, tmp_path: Path
) -> None:
    """Its output layer is doubled three times, as if it had been trained far beyond its best log loss."""
    model = load_model(members[0].directory)
    *_, last = [module for module in model.modules() if isinstance(module, nn.Linear)]
    with torch.no_grad():
        for parameter in last.parameters():
            parameter.mul_(8)
    save_model(model, tmp_path / "sure")
    sure = members[0].model_copy(update={"directory": tmp_path / "sure"})
    result = combine_members(dataset, [sure], PLACEMENT, tmp_path / "final", parent_run_id=parent)
    assert result.kept == "single"
    assert result.scale < 0.5
    assert f"multiplied by {result.scale:.2f}" in result.reason
    saved = load_model(tmp_path / "final")
    execution = execution_of(PLACEMENT)
    plain = evaluate(model, dataset, "test", execution)
    assert evaluate(saved, dataset, "test", execution).logits == pytest.approx(result.scale * plain.logits, rel=1e-4)
    assert result.test.auc == pytest.approx(plain.metrics.auc)
    assert result.test.logloss < plain.metrics.logloss


def test_test_part_is_scored_once_however_often_it_is_called(
    dataset: Dataset, members: list[TrainedModel], parent: str, tmp_path: Path
) -> None:
    first = combine_members(dataset, members, PLACEMENT, tmp_path / "final", parent_run_id=parent)
    label_file = dataset.directory / "test.label.npy"
    hidden = label_file.rename(tmp_path / "hidden.npy")
    try:
        again = combine_members(dataset, members, PLACEMENT, tmp_path / "final", parent_run_id=parent)
        with pytest.raises(Exception, match=r"test\.label"):
            combine_members(dataset, members[:2], PLACEMENT, tmp_path / "other", parent_run_id=parent)
    finally:
        hidden.rename(label_file)
    assert again == first
    assert EnsembleResult.model_validate_json(first.model_dump_json()) == first


HEADLINES = {f"quality/{name}" for name in ("auc", "ne", "logloss", "calibration", "validation_auc", "validation_ne")}


def test_figures_go_to_the_child_and_the_parent(
    dataset: Dataset, members: list[TrainedModel], parent: str, tmp_path: Path
) -> None:
    result = combine_members(dataset, members, PLACEMENT, tmp_path / "final", parent_run_id=parent)
    client = MlflowClient(tracking_uri())
    for run_id in (parent, result.run_id):
        run = tracked_run(client.get_run(run_id))
        assert run.metrics["quality.test.auc"] == result.test.auc
        assert run.metrics["quality.ne"] == result.validation.ne
        assert run.tags["ensemble.kept"] == result.kept
    assert client.get_run(parent).data.metrics.keys() == HEADLINES
    child = client.get_run(result.run_id)
    assert child.info.status == "FINISHED"
    assert child.data.tags["mlflow.parentRunId"] == parent
    assert child.data.metrics["ensemble.weight.member-0"] == result.members[0].weight


def test_a_limit_of_a_prediction_leaves_no_more_than_keep_it(
    dataset: Dataset, members: list[TrainedModel], parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times are given here, for what a machine takes is not for a test: two of three keep the limit together."""
    given = iter([9.0, 1.0, 1.1, 2.1])  # the last is that of the result
    monkeypatch.setattr(
        "shunter.tasks.ensemble.combine.serving_cost",
        lambda *_: ServingCost(milliseconds=next(given), weight_bytes=100, joules=1e-4, joules_by="estimated"),
    )
    limits = EnsembleLimits(serving=ServingLimits(milliseconds=2.5))
    result = combine_members(dataset, members, PLACEMENT, tmp_path / "final", parent_run_id=parent, limits=limits)
    assert not result.members[0].is_used
    assert len(result.members) == 3
    assert result.test == evaluate(load_model(tmp_path / "final"), dataset, "test", execution_of(PLACEMENT)).metrics
    logged = MlflowClient(tracking_uri()).get_run(result.run_id).data.metrics
    assert logged["serving.milliseconds.member-0"] == 9.0
    assert logged["serving.milliseconds.result"] == 2.1
    assert logged["serving.joules.member-1"] == 1e-4
