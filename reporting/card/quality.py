"""Quality of the result on the test part, for each label with intervals and calibration."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch

from shunter.engine.checkpoint.scoring import load_to_score
from shunter.engine.config import Execution
from shunter.engine.data.arrays import read_array
from shunter.engine.data.batch import Bags, make_batch
from shunter.engine.data.dataset import Dataset
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.metrics import further_metrics, grouped_area_under_roc, grouped_ranking, predict
from shunter.engine.results import Evaluation
from shunter.frozen import Frozen
from shunter.ingestion.batch import MISSING_KEY
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
    number = dataset.features.number
    for task, labels, logits, weights, rows in _tasks(evaluation, dataset):
        own = None if groups is None else groups[rows]
        classes = (np.ones(len(labels), bool),) if number else (labels == 0, labels == 1)
        grouped: dict[str, float | None] = {}
        if own is not None and dataset.grouped_by is not None and number is None:
            ndcg, mrr = grouped_ranking(labels, logits, own)  # these ignore the weights of rows
            gauc = grouped_area_under_roc(labels, logits, own, weights)
            grouped = {"gauc": defined(gauc), "ndcg": defined(ndcg), "mrr": defined(mrr)}
        sampled = {"weights": weights, "groups": own, "seed": seed, "resamples": resamples}
        intervals = bootstrap(labels, logits, **sampled, number=number)
        bins = reliability(labels, logits, weights, number=number)
        figures = tuple(
            QualityFigure(
                task=task,
                name=name,
                value=defined(one.value),
                low=defined(one.low),
                high=defined(one.high),
            )
            for name, one in intervals.items()
        )
        judged.append(
            TaskQuality(
                task=task,
                figures=figures,
                reliability=bins,
                calibration_error=expected_calibration_error(bins),
                rows=len(labels),
                positives=0 if number else int((labels > 0).sum()),
                **grouped,
                more={} if number else further_metrics(labels, logits, weights),
                users=None if own is None else min(len(np.unique(own[rows])) for rows in classes),
                is_number=number is not None,
            )
        )
    return tuple(judged)


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
    single = [field.name for field in dataset.features.categorical if not field.multi_valued]
    if dataset.grouped_by in single:
        return dataset.grouped_by
    return next((name for name in single if name.lower().replace("_", "") in USER_FIELDS), None)


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


def defined(value: float) -> float | None:
    """Return a figure, or None if it is not finite."""
    return value if math.isfinite(value) else None


LARGEST_ODDS_RATIO = 2.0  # largest accepted ratio between the odds of the score and the base rate, in either direction


class UnknownRow(Frozen):
    """Score of a row without any known value.

    Attributes:
        probability: Predicted probability of the main label, or the predicted number.
        base_rate: Share of positives in the training part, or the mean label.
        is_number: Whether the label is numeric.
    """

    probability: float
    base_rate: float
    is_number: bool = False

    @property
    def is_far_off(self) -> bool:
        """Return True if the odds of score and base rate differ by more than the factor `LARGEST_ODDS_RATIO`."""
        if self.is_number or not 0 < self.base_rate < 1:
            return False
        if not 0 < self.probability < 1:
            return True
        odds = math.log(self.probability / (1 - self.probability)) - math.log(self.base_rate / (1 - self.base_rate))
        return abs(odds) > math.log(LARGEST_ODDS_RATIO)

    @property
    def sentence(self) -> str:
        """Score and base rate, and advice if they differ much."""
        average = f"the average is {self.base_rate:.3f}"
        told = f"A row of values that training never saw scores {self.probability:.3f}; {average}."
        advice = " Do not trust rows with many such values: `shunter predict --max-unknown SHARE` refuses them."
        return told + (advice if self.is_far_off else "")


@torch.no_grad()
def score_unknown_row(directory: Path, dataset: Dataset, execution: Execution) -> UnknownRow:
    """Score a row in which every id is 0, every number is missing and every list is empty.

    Raises:
        CheckpointError: A file of the model is damaged.
    """
    features = dataset.features
    single = sum(not field.multi_valued for field in features.categorical)
    lists = [field for field in features.categorical if field.multi_valued]
    none, empty = np.empty(0, np.int32), np.zeros(1, np.int64)
    batch = make_batch(
        features,
        dense=np.zeros((1, len(features.dense)), np.float32) if features.dense else None,
        categorical=np.zeros((1, single), np.int32) if single else None,
        bags=[
            Bags(values=none, lengths=empty, weights=none.astype(np.float32) if field.is_weighted else None)
            for field in lists
        ],
    )
    model = load_to_score(directory, execution)
    logits = model(*batch.to(execution.device).inputs).float().reshape(1, -1)
    return UnknownRow(
        probability=float(predict(logits[0, :1].cpu().numpy(), features.number)[0]),
        base_rate=float(dataset.splits["train"].base_rate),
        is_number=features.number is not None,
    )
