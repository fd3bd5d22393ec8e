"""Scores in the order of the rows, and metrics from them."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

import shunter.engine.loop.evaluation
from shunter.engine.config import Execution
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.metrics import compute_metrics
from shunter.models.registry import build_model, model_spec
from tests.engine.synthetic import write_dataset


def test_logits_come_in_the_order_of_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shunter.engine.loop.evaluation, "SMALLEST_BATCH", 16)
    dataset = write_dataset(tmp_path, rows=700)
    model = build_model(model_spec(dropout=0.5), dataset.features).train()
    evaluation = evaluate(model, dataset, "test", Execution(batch_size=16))
    assert model.training
    assert np.array_equal(evaluation.labels, np.load(tmp_path / "test.label.npy"))
    assert evaluation.metrics == compute_metrics(evaluation.labels, evaluation.logits)
    model.eval()
    with torch.no_grad():
        (whole,) = BatchLoader(dataset, "test", 10_000).batches()
        np.testing.assert_allclose(evaluation.logits, model(*whole.inputs).numpy(), atol=1e-6)


def test_bfloat16_scores_are_near_those_of_float32(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=700)
    model = build_model(model_spec(), dataset.features)
    exact, rounded = (
        evaluate(model, dataset, "test", Execution(precision=precision)).logits for precision in ("fp32", "bf16")
    )
    assert not np.array_equal(exact, rounded)
    np.testing.assert_allclose(exact, rounded, atol=0.05)


def test_evaluation_changes_no_weight(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=700)
    model = build_model(model_spec(), dataset.features)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    evaluate(model, dataset, "train", Execution())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("threads", [1, 2])
def test_the_number_of_threads_is_given_back(tmp_path: Path, threads: int) -> None:
    dataset = write_dataset(tmp_path, rows=700)
    before = torch.get_num_threads()
    evaluate(build_model(model_spec(), dataset.features), dataset, "test", Execution(threads=threads))
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("family", ["dlrm", "dcnv2", "finalmlp"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_batches_scored_at_the_same_time_have_the_same_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, precision: Literal["fp32", "bf16"]
) -> None:
    monkeypatch.setattr(shunter.engine.loop.evaluation, "SMALLEST_BATCH", 16)
    dataset = write_dataset(tmp_path, rows=3_000)
    model, execution = build_model(model_spec(family), dataset.features), Execution(batch_size=16, precision=precision)
    alone = evaluate(model, dataset, "train", execution)
    together = evaluate(model, dataset, "train", execution, at_once=3)
    assert np.array_equal(alone.logits, together.logits)
