"""The test part is scored once for all who ask, and again for other weights or data."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.scored import copy_scores, read_scores, score_test, store_scores
from shunter.engine.job import TrainingJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.trainer import train
from shunter.models.registry import build_model, model_spec
from tests.engine.synthetic import write_dataset

EXECUTION = Execution(batch_size=64)
SPEC = model_spec(embedding_dim=4, top_widths=(4,), bottom_widths=())


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "data", rows=300)


def save(dataset: Dataset, directory: Path, bias: float) -> None:
    model = build_model(SPEC, dataset.features)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(bias)
    save_model(model, directory)


def test_a_second_scoring_reads_what_the_first_has_kept(dataset: Dataset, tmp_path: Path) -> None:
    save(dataset, tmp_path / "model", bias=0.0)
    expected = evaluate(load_model(tmp_path / "model"), dataset, "test", EXECUTION)
    first = score_test(tmp_path / "model", dataset, EXECUTION)
    (tmp_path / "model" / "model.safetensors").unlink()
    second = score_test(tmp_path / "model", dataset, EXECUTION)
    for found in (first, second):
        assert np.array_equal(found.logits, expected.logits)
        assert np.array_equal(found.labels, expected.labels)
        assert found.metrics == expected.metrics


def test_a_file_cut_short_and_other_weights_are_scored_anew(dataset: Dataset, tmp_path: Path) -> None:
    save(dataset, tmp_path / "model", bias=0.0)
    first = score_test(tmp_path / "model", dataset, EXECUTION)
    [kept] = (tmp_path / "model").glob("test-*.npy")
    kept.write_bytes(kept.read_bytes()[:50])
    assert np.array_equal(score_test(tmp_path / "model", dataset, EXECUTION).logits, first.logits)
    save(dataset, tmp_path / "model", bias=0.5)
    assert not np.array_equal(score_test(tmp_path / "model", dataset, EXECUTION).logits, first.logits)


def test_scores_of_a_training_are_those_of_its_model_and_go_with_a_copy(dataset: Dataset, tmp_path: Path) -> None:
    result = train(TrainingJob(dataset, SPEC, Hyperparameters(), EXECUTION, Schedule(max_epochs=3, patience=1)))
    save_model(result.model, tmp_path / "model")
    assert read_scores(tmp_path / "model", dataset, "validation", EXECUTION) is None
    assert result.validation_logits is not None
    store_scores(tmp_path / "model", dataset, "validation", EXECUTION, result.validation_logits)
    shutil.copytree(tmp_path / "model", tmp_path / "copy", ignore=shutil.ignore_patterns("*.npy"))
    copy_scores(tmp_path / "model", tmp_path / "copy", dataset, "validation", EXECUTION)
    kept = read_scores(tmp_path / "copy", dataset, "validation", EXECUTION)
    expected = evaluate(load_model(tmp_path / "copy"), dataset, "validation", EXECUTION)
    assert kept is not None
    assert np.array_equal(kept.logits, expected.logits)
    assert kept.metrics == expected.metrics == result.validation
    save(dataset, tmp_path / "copy", bias=0.5)
    assert read_scores(tmp_path / "copy", dataset, "validation", EXECUTION) is None, "they are of other weights"


def test_scores_of_layers_that_were_computed_otherwise_are_not_handed_on(dataset: Dataset) -> None:
    other = replace(EXECUTION, compacts_dead_units=True)
    result = train(TrainingJob(dataset, SPEC, Hyperparameters(), other, Schedule(max_epochs=1)))
    assert result.validation_logits is None
