"""Gradient-boosted trees beside a model: encodings that know no label of their own, and a table that shows them."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

import shunter.tasks.baselines
from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.reporting.card.baselines import baseline_metrics, compare_baselines
from shunter.requests import TrainRequest, baselines_of
from shunter.tasks.baselines import candidates_of, train_baselines, train_rivals
from shunter.tasks.baselines.trees import FOLDS, PRIOR_ROWS, Table, train_trees
from shunter.tasks.ensemble import combine_members
from shunter.tasks.train import train_model
from shunter.tracking.runs import start_run_tree
from tests.engine.reasons import ENOUGH
from tests.engine.synthetic import write_dataset
from tests.tasks.baselines.test_baselines import PLACEMENT, context_of


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "data", rows=2_000)


def test_the_share_of_an_id_is_of_other_folds_in_training_and_of_all_rows_elsewhere() -> None:
    random = np.random.default_rng(0)
    rows, ids_count = 60, 7
    ids, bag_rows = random.integers(0, ids_count, rows), np.sort(random.integers(0, rows, 100))
    bag_ids = random.integers(0, ids_count, 100)
    known = Table(np.zeros((rows, 1), np.float32), [(np.arange(rows), ids), (bag_rows, bag_ids)], [ids_count] * 2)
    labels, folds = random.integers(0, 2, rows).astype(np.float32), random.integers(0, FOLDS, rows)
    weights = random.integers(0, 3, rows).astype(np.float32)
    base_rate = (labels @ weights) / weights.sum()

    def share(places: np.ndarray) -> float:
        return (weights[places] @ labels[places] + PRIOR_ROWS * base_rate) / (weights[places].sum() + PRIOR_ROWS)

    found = known.encoded(known, labels, weights, folds)
    for row in range(rows):
        others = folds != folds[row]
        assert found[row, 1] == pytest.approx(share(np.flatnonzero(others & (ids == ids[row]))), rel=1e-5)
        assert found[row, 2] == pytest.approx(np.log1p(weights[ids == ids[row]].sum()), rel=1e-5)
        own = bag_ids[bag_rows == row]
        expected = [share(bag_rows[(bag_ids == one) & others[bag_rows]]) for one in own]
        assert found[row, 3] == pytest.approx(np.mean(expected) if expected else base_rate, rel=1e-5)
    later = Table(np.ones((1, 1), np.float32), [(np.array([0]), ids[:1]), (bag_rows[:0], bag_ids[:0])], [ids_count] * 2)
    assert later.encoded(known, labels, weights)[0] == pytest.approx(
        [1, share(np.flatnonzero(ids == ids[0])), np.log1p(weights[ids == ids[0]].sum()), base_rate, 0], rel=1e-5
    )


def test_an_id_for_each_row_tells_nothing_of_its_label(dataset: Dataset) -> None:
    rows = np.arange(500)
    known = Table(np.zeros((500, 0), np.float32), [(rows, rows)], [500])
    labels = np.random.default_rng(0).integers(0, 2, 500).astype(np.float32)
    found = known.encoded(known, labels, None, rows % FOLDS)
    assert found[:, 0] == pytest.approx(labels.mean())


def test_trees_learn_are_kept(dataset: Dataset, tmp_path: Path) -> None:
    trees = train_trees(dataset, tmp_path / "gbt")
    assert trees is not None
    assert trees.validation.ne < 0.98
    assert trees.validation.auc > 0.6
    written = trees.test_logits.stat().st_mtime_ns
    again = train_trees(dataset, tmp_path / "gbt")
    assert again is not None
    assert again.trained_at is not None
    assert again.model_copy(update={"trained_at": None}) == trees
    assert trees.test_logits.stat().st_mtime_ns == written


def test_they_stand_in_the_table_beside_the_result(
    dataset: Dataset, tracking_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shunter.tasks.baselines, "train_member", train_model)
    run = context_of(dataset, tmp_path, baselines="lr,gbt")
    found, (trees,) = train_baselines(run), train_rivals(run)
    assert train_rivals(context_of(dataset, tmp_path)) == []
    assert train_rivals(context_of(dataset, tmp_path, answers=[ENOUGH], baselines="gbt")) == []
    parent = start_run_tree(TrainRequest(), dataset)
    members = candidates_of([], found, run.request)
    result = combine_members(dataset, members, PLACEMENT, tmp_path / "ensemble", parent_run_id=parent)
    figures = compare_baselines(dataset, [*found, trees], result, Execution(batch_size=128))[1]
    labels = np.load(dataset.directory / "test.label.npy")
    logits = np.load(trees.test_logits)
    assert figures.logloss == pytest.approx((np.logaddexp(0, logits) - labels * logits).mean(), rel=1e-5)
    assert figures.saving == pytest.approx(1 - result.test.logloss / (figures.logloss or 1), abs=1e-4)
    assert "baseline gbt" in figures.summary
    assert baseline_metrics([figures], result.test)["baseline.gbt.test.auc"] == figures.auc


def test_they_are_asked_for_by_name_and_of_models_of_clicks_alone() -> None:
    assert baselines_of(TrainRequest()) == ("lr", "fm")
    assert baselines_of(TrainRequest(baselines="gbt")) == ("gbt",)
    with pytest.raises(ValidationError):
        TrainRequest(model="ease", baselines="gbt")
