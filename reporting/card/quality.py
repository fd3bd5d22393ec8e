"""Quality of the result on the test part, for each label with intervals and calibration."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from shunter.engine.checkpoint.scoring import load_to_score
from shunter.engine.config import Execution
from shunter.engine.data.arrays import read_array
from shunter.engine.data.dataset import Dataset
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.metrics import further_metrics, grouped_area_under_roc, grouped_ranking
from shunter.engine.results import Evaluation
from shunter.ingestion.batch import MISSING_KEY
from shunter.models.spec import NumberLabel
from shunter.reporting.card.bootstrap import RESAMPLES, bootstrap
from shunter.reporting.card.calibration import expected_calibration_error, reliability
from shunter.reporting.card.figures import QualityFigure, TaskQuality

# Usual names of the user field in click logs, in lower case and without underscores.
USER_FIELDS = ("user", "userid", "uid", "member", "memberid", "customer", "customerid", "session", "sessionid")


def evaluate_quality(
    evaluation: Evaluation, dataset: Dataset, groups: np.ndarray | None, *, seed: int, resamples: int = RESAMPLES
) -> tuple[TaskQuality, ...]:
    """Return metrics with intervals for each label; see `shunter.reporting.card.bootstrap`.

    Args:
        evaluation: Evaluation of the test part.
        dataset: Data set, which names the labels if there are several.
        groups: Group of each row, such as its user, within which rows are dependent, `[rows]`; None without a user.
        seed: Seed of the bootstrap.
        resamples: Number of resamples.
    """
    judged = []
    for task, labels, logits, weights, rows in _tasks(evaluation, dataset):
        own = None if groups is None else groups[rows]
        number = dataset.features.number
        is_grouped = dataset.grouped_by is not None and number is None
        sampled = {"weights": weights, "groups": own, "seed": seed, "resamples": resamples}
        intervals = bootstrap(labels, logits, **sampled, number=number)
        bins = reliability(labels, logits, weights, number=number)
        figures = tuple(
            QualityFigure(
                task=task,
                name=name,
                value=_defined(intervals[name].value),
                low=_defined(intervals[name].low),
                high=_defined(intervals[name].high),
            )
            for name in intervals
        )
        judged.append(
            TaskQuality(
                task=task,
                figures=figures,
                reliability=bins,
                calibration_error=expected_calibration_error(bins),
                rows=len(labels),
                positives=0 if number else int((labels > 0).sum()),
                **_within_groups(labels, logits, own, weights) if own is not None and is_grouped else {},
                more={} if number else further_metrics(labels, logits, weights),
                users=None if own is None else min(len(np.unique(own[rows])) for rows in _classes(labels, number)),
                is_number=number is not None,
            )
        )
    return tuple(judged)


def _classes(labels: np.ndarray, number: NumberLabel | None) -> tuple[np.ndarray, ...]:
    """Return a mask of the rows for each class; with a numeric label all rows are one class."""
    return (np.ones(len(labels), bool),) if number else (labels == 0, labels == 1)


def _within_groups(
    labels: np.ndarray, logits: np.ndarray, groups: np.ndarray, weights: np.ndarray | None
) -> dict[str, float | None]:
    """Return GAUC, NDCG and MRR within groups such as users; NDCG and MRR ignore the weights of rows."""
    ndcg, mrr = grouped_ranking(labels, logits, groups)
    gauc = grouped_area_under_roc(labels, logits, groups, weights)
    return {name: _defined(value) for name, value in (("gauc", gauc), ("ndcg", ndcg), ("mrr", mrr))}


def group_metrics(quality: Iterable[TaskQuality]) -> dict[str, float]:
    """Return the metrics within users or other groups for each label, by MLflow name; empty without groups."""
    return {
        f"quality.test.{name}{'.' if number else ''}{one.task if number else ''}": value
        for number, one in enumerate(quality)
        for name in ("gauc", "ndcg", "mrr")
        if (value := getattr(one, name)) is not None
    }


def quality_of_files(directory: Path, dataset: Dataset, execution: Execution, *, seed: int) -> tuple[TaskQuality, ...]:
    """Score the model in a folder on the test part, with intervals; see `evaluate_quality`.

    Raises:
        CheckpointError: A file of the model is damaged.
        DataError: An array cannot be read.
    """
    evaluation = evaluate(load_to_score(directory, execution), dataset, "test", execution)
    field = user_field(dataset)
    return evaluate_quality(evaluation, dataset, None if field is None else user_groups(dataset, field), seed=seed)


def user_field(dataset: Dataset) -> str | None:
    """Return the field that identifies the group or user, by the schema or by a common name; None without one."""
    for field in dataset.features.categorical:
        if not field.multi_valued and field.name == dataset.grouped_by:
            return field.name
    for field in dataset.features.categorical:
        if not field.multi_valued and field.name.lower().replace("_", "") in USER_FIELDS:
            return field.name
    return None


def user_groups(dataset: Dataset, field: str) -> np.ndarray:
    """Return the user of each row of the test part, including users that are absent from training.

    Each row without a user is a separate group. Rows of unknown users are separate groups too if the original values
    were not stored.
    """
    keys = dataset.directory / "test.user_key.npy"
    if field == dataset.grouped_by and keys.exists():
        users = read_array(keys)
        ids = np.where(users == MISSING_KEY, 0, np.unique(users, return_inverse=True)[1] + 1)
    else:
        single = [feature.name for feature in dataset.features.categorical if not feature.multi_valued]
        ids = read_array(dataset.directory / "test.categorical.npy")[:, single.index(field)].astype(np.int64)
    unknown = np.flatnonzero(ids == 0)
    ids[unknown] = ids.max(initial=0) + 1 + np.arange(len(unknown))
    return ids


def _tasks(
    evaluation: Evaluation, dataset: Dataset
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]]:
    """Yield for each label its name and the labels, logits, weights and indices of its rows with nonzero weight."""
    for number, name in enumerate(dataset.features.tasks or ("",)):
        labels, logits, weights = evaluation.of_task(number)
        if weights is None:
            yield name, labels, logits, None, np.arange(len(labels))
        elif weights.any():
            rows = np.flatnonzero(weights)
            yield name, labels[rows], logits[rows], weights[rows], rows


def _defined(value: float) -> float | None:
    return value if math.isfinite(value) else None
