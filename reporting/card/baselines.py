"""Comparison of the result with baselines on the same test part."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import ConfigDict, Field

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.ensemble.scored import score_test
from shunter.engine.metrics import Metrics, compute_metrics, row_losses
from shunter.engine.trained_model import TrainedModel
from shunter.frozen import Frozen
from shunter.reporting.card.figures import BaselineFigures, TrainedAt
from shunter.reporting.card.quality import defined, user_field, user_groups
from shunter.statistics import central_interval

RESAMPLES = 1_000
MOST_BLOCKS = 10_000


class TrainedBaseline(Frozen):
    """Trained baseline model, with the time and energy of its training runs."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    model: TrainedModel = Field(description="Best trained model of the baseline, named after its family.")
    train_seconds: float = Field(
        description="Seconds of all training runs of the baseline, of which the best was selected."
    )
    joules: float | None = Field(
        description="Energy of all training runs of the baseline, in joules; None if no meter or estimate is available."
    )
    trained_at: TrainedAt = None


class Rival(Frozen):
    """Baseline outside of Shunter's model families, which is compared but never selected as the result."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    name: str
    validation: Metrics
    test_logits: Path = Field(
        description="File of the baseline's logits for the rows of the test part, float32 [rows]."
    )
    train_seconds: float
    joules: float | None = Field(
        default=None, description="Energy to train the baseline, in joules; None if it was not measured."
    )
    trained_at: TrainedAt = None


def compare_baselines(
    dataset: Dataset,
    baselines: Sequence[TrainedBaseline | Rival],
    result: EnsembleResult,
    execution: Execution,
    *,
    seed: int = 0,
) -> tuple[BaselineFigures, ...]:
    """Score each baseline on the test part and compare it with the result; the comparison does not select a model.

    Raises:
        CheckpointError: A file of a model is damaged.
        DataError: An array cannot be read.
    """
    if not baselines:
        return ()
    field, number = user_field(dataset), dataset.features.number
    groups = None if field is None else user_groups(dataset, field)
    labels, our_logits, weights = score_test(result.directory, dataset, execution).of_task(0)
    found = []
    for baseline in baselines:
        if isinstance(baseline, Rival):
            model, logits = baseline, np.load(baseline.test_logits)
        else:
            model = baseline.model
            logits = score_test(model.directory, dataset, execution).of_task(0)[1]
        theirs, our_losses = (row_losses(labels, one, number) for one in (logits, our_logits))
        saving = relative_saving(theirs, our_losses, weights, groups, seed)
        quality = compute_metrics(labels, logits, weights, number)
        found.append(
            BaselineFigures(
                name=model.name,
                validation_auc=defined(model.validation.auc),
                validation_ne=defined(model.validation.ne),
                auc=defined(quality.auc),
                logloss=defined(quality.logloss),
                ne=defined(quality.ne),
                rmse=quality.rmse,
                mae=quality.mae,
                train_seconds=baseline.train_seconds,
                joules=baseline.joules,
                saving=saving[0],
                saving_low=saving[1],
                saving_high=saving[2],
                is_result=result.kept == "single" and result.best_single == model.name,
                trained_at=baseline.trained_at,
            )
        )
    return tuple(found)


def baseline_metrics(baselines: Sequence[BaselineFigures], test: Metrics) -> dict[str, float]:
    """Return the MLflow metrics of the baselines, `baseline.*`, including the constant prediction of the base rate.

    The log loss of the base rate is computed from the quality `test` of the result on the same rows.
    """
    values: dict[str, float | None] = {}
    if test.rmse is None:
        values["baseline.base_rate.ne"] = 1.0
        if test.ne:
            values["baseline.base_rate.test.logloss"] = defined(test.logloss / test.ne)
    for one in baselines:
        relative = "ne" if one.rmse is None else "relative_loss"
        values |= {
            f"baseline.{one.name}.auc": one.validation_auc,
            f"baseline.{one.name}.{relative}": one.validation_ne,
            f"baseline.{one.name}.test.auc": one.auc,
            f"baseline.{one.name}.test.{relative}": one.ne,
            f"baseline.{one.name}.test.logloss": one.logloss if one.rmse is None else None,
            f"baseline.{one.name}.test.rmse": one.rmse,
            f"baseline.{one.name}.test.mae": one.mae,
            f"baseline.{one.name}.train_seconds": one.train_seconds,
            f"baseline.{one.name}.joules": one.joules,
            f"baseline.{one.name}.saving": one.saving,
            f"baseline.{one.name}.saving_low": one.saving_low,
            f"baseline.{one.name}.saving_high": one.saving_high,
        }
    return {name: value for name, value in values.items() if value is not None}


def relative_saving(
    theirs: np.ndarray, ours: np.ndarray, weights: np.ndarray | None, groups: np.ndarray | None, seed: int
) -> tuple[float, float, float]:
    """Return the relative reduction of the mean loss against a baseline, with bounds from a paired bootstrap.

    Each resample counts each block of rows a Poisson(1) number of times. A block is a row or all rows of a user. If
    there are more than `MOST_BLOCKS`, random blocks are merged.

    Args:
        theirs: Loss of each row by the baseline, `[rows]`.
        ours: Loss of each row by the result, `[rows]`.
        weights: Weights of the rows; None weighs all rows equally.
        groups: Id of the group of each row; None treats rows as independent.
        seed: Seed of the resamples.

    Returns:
        The reduction as a share of the baseline's loss, and the bounds of its 95 % interval.
    """
    random = np.random.default_rng(seed)
    weights = np.ones(len(theirs)) if weights is None else weights.astype(np.float64)
    units = np.arange(len(theirs)) if groups is None else np.unique(groups, return_inverse=True)[1]
    count = int(units.max()) + 1
    blocks = random.permutation(count)[units] % min(count, MOST_BLOCKS)
    saved = np.bincount(blocks, weights * (theirs - ours))
    total = np.bincount(blocks, weights * theirs)
    drawn = random.poisson(1.0, (RESAMPLES, len(saved))).astype(np.float64)
    shares = (drawn @ saved) / np.maximum(drawn @ total, np.finfo(np.float64).tiny)
    return float(saved.sum() / total.sum()), *central_interval(shares)
