"""A promise: kept or missed, told in words, and read back from the tags of a version."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.guarantee import bounds
from shunter.engine.metrics import compute_metrics
from shunter.errors import QualityNotReachedError
from shunter.reporting.card.promise import Promise, independent_units, newest_day
from shunter.requests import Limits, TrainRequest
from shunter.tasks.register import check_quality
from shunter.tracking.promise import promised
from tests.engine.synthetic import write_dataset

RANDOM = np.random.default_rng(0)
SCORES = 2 * RANDOM.normal(size=500)
LABELS = (RANDOM.random(500) < 1 / (1 + np.exp(-SCORES))).astype(np.float32)
FOUND = bounds(LABELS, SCORES, confidence=0.9)
QUALITY = compute_metrics(LABELS, SCORES)


def promise(min_auc: float | None = None, max_ne: float | None = None) -> Promise:
    return Promise(min_auc=min_auc, max_ne=max_ne, confidence=0.9, unit="rows", bounds=FOUND)


def test_a_kept_promise_is_on_the_version() -> None:
    kept = promise(FOUND.auc_low, FOUND.ne_high)
    check_quality(Limits(), QUALITY, promise=kept)
    check_quality(Limits(), QUALITY, promise=None)
    assert promised(kept.tags) == (FOUND.auc_low, FOUND.ne_high, 0.9)
    assert f"at least {FOUND.auc_low:.4f}" in kept.sentence
    assert "500 rows" in kept.sentence
    assert kept.metrics["promise.auc_low"] == FOUND.auc_low
    assert json.loads(json.dumps(kept.as_json))["bounds"]["ne_high"] == FOUND.ne_high


def test_a_missed_promise_is_refused_with_what_it_lacks() -> None:
    """What was measured keeps the limit; only its bound does not."""
    asked = (FOUND.auc + FOUND.auc_low) / 2
    with pytest.raises(QualityNotReachedError, match=f"misses --min-auc {asked:g} by {asked - FOUND.auc_low:.4f}"):
        check_quality(Limits(), QUALITY, promise=promise(asked))
    with pytest.raises(QualityNotReachedError, match="--max-ne"):
        check_quality(Limits(), QUALITY, promise=promise(max_ne=FOUND.ne))


def test_without_a_bound_nothing_is_promised() -> None:
    few = Promise(
        min_auc=0.5, max_ne=None, confidence=0.9, unit="rows", bounds=bounds(LABELS[:5], SCORES[:5], confidence=0.9)
    )
    assert math.isnan(few.bounds.auc_low)
    with pytest.raises(QualityNotReachedError):
        check_quality(Limits(), QUALITY, promise=few)


@pytest.mark.parametrize("tags", [{}, {"promise.min_auc": "0.8"}, {"promise.confidence": "high"}])
def test_a_version_may_promise_nothing(tags: dict[str, str]) -> None:
    assert promised(tags) is None


def test_an_entropy_above_its_limit_is_refused() -> None:
    check_quality(Limits(), QUALITY)
    check_quality(Limits(), QUALITY, max_ne=QUALITY.ne)
    with pytest.raises(QualityNotReachedError, match="--max-ne"):
        check_quality(Limits(), QUALITY, max_ne=0.1)


def test_a_confidence_needs_a_limit() -> None:
    with pytest.raises(ValueError, match="--min-auc-confidence"):
        TrainRequest(min_auc_confidence=0.95)
    assert TrainRequest(limits={"min_auc": 0.8}, min_auc_confidence=0.95).promise.min_auc_confidence == 0.95


@pytest.mark.parametrize(("days", "unit"), [(30, "days"), (10, "rows")])
def test_rows_of_a_day_are_drawn_together_where_there_are_enough_days(tmp_path: Path, days: int, unit: str) -> None:
    dataset = write_dataset(tmp_path, rows=2_000)
    rows = dataset.splits["test"].rows
    of_rows = np.arange(rows) * days // rows
    np.save(tmp_path / "test.time.npy", 1.7e9 + 86_400.0 * of_rows)
    timed = replace(dataset, time_range=(1.6e9, 1.7e9 + 86_400.0 * days))
    found, groups = independent_units(timed)
    assert found == unit
    assert groups is None or len(np.unique(groups)) == days
    labels = np.load(tmp_path / "test.label.npy")
    told = newest_day(timed, labels, np.zeros(rows), np.arange(rows))
    assert f"of {int((of_rows == days - 1).sum())} rows, 0.5000 predicted" in told
    assert "does not drift" in newest_day(timed, _at_base_rate(dataset, rows), np.zeros(rows), np.arange(rows))
    assert "The base rate drifts" in newest_day(timed, np.ones(rows), np.zeros(rows), np.arange(rows))
    assert newest_day(dataset, labels, np.zeros(rows), np.arange(rows)) == ""


def _at_base_rate(dataset: Dataset, rows: int) -> np.ndarray:
    """Labels that are positive as often in any part of them as those of validation."""
    rate = dataset.splits["validation"].base_rate
    return np.diff(np.floor(rate * np.arange(rows + 1)))
