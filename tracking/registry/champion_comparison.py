"""Test whether a challenger beats the champion by more than a margin: a paired bootstrap over the same rows."""

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from shunter.engine.metrics import binary_entropy
from shunter.errors import DataError, TrainingError
from shunter.frozen import Frozen
from shunter.statistics import one_sided_bounds, resampled_block_means


class ChampionComparison(Frozen):
    """Comparison of champion and challenger on the same rows.

    Attributes:
        rows: Number of rows that both models scored.
        champion_logloss: Mean log loss of the champion, in nats.
        challenger_logloss: Mean log loss of the challenger, in nats.
        saving: Mean log loss of the champion minus that of the challenger; positive if the challenger is better.
        saving_low: Lower confidence bound of the saving.
        saving_high: Upper one-sided confidence bound of the saving.
        needed: Saving that must be exceeded: margin times the champion's log loss.
        confidence: Requested confidence.
        is_better: Whether `saving_low` exceeds `needed`.
        champion_low: Lower confidence bound of the champion's log loss.
        champion_auc: AUC of the champion; None if the rows have one class.
        challenger_auc: AUC of the challenger; None if the rows have one class.
        base_rate: Share of positives among the rows; None if the rows have one class.
        constant_loss: Mean loss of the best constant prediction, if the label is numeric; None for clicks.
        champion_rmse: RMSE of the champion, if the label is numeric; None for clicks.
        challenger_rmse: RMSE of the challenger, if the label is numeric; None for clicks.

        If the label is numeric, the losses are those of the numeric label instead of log losses.
    """

    rows: int
    champion_logloss: float
    challenger_logloss: float
    saving: float
    saving_low: float
    saving_high: float
    needed: float
    confidence: float
    is_better: bool
    champion_low: float = 0.0
    champion_auc: float | None = None
    challenger_auc: float | None = None
    base_rate: float | None = None
    constant_loss: float | None = Field(default=None, exclude_if=lambda value: value is None)
    champion_rmse: float | None = Field(default=None, exclude_if=lambda value: value is None)
    challenger_rmse: float | None = Field(default=None, exclude_if=lambda value: value is None)

    def of_numbers(self, constant: NDArray[np.float64], **rmse: float) -> Self:
        """Return this comparison for a numeric label; `constant` is the loss of each row by the best constant."""
        return self.model_copy(update={"constant_loss": float(constant.mean()), **rmse})

    def headline(self) -> dict[str, float]:
        """Return AUC and NE, or RMSE and relative loss, of both models by metric name; empty if unknown."""
        if self.constant_loss and self.champion_rmse is not None and self.challenger_rmse is not None:
            relative = self.challenger_logloss / self.constant_loss
            return {
                "quality/rmse": self.challenger_rmse,
                "quality/relative_loss": relative,
                "nightly/challenger_rmse": self.challenger_rmse,
                "nightly/challenger_relative_loss": relative,
                "nightly/champion_rmse": self.champion_rmse,
                "nightly/champion_relative_loss": self.champion_logloss / self.constant_loss,
            }
        if self.base_rate is None or self.champion_auc is None or self.challenger_auc is None:
            return {}
        ne = self.challenger_logloss / binary_entropy(self.base_rate)
        return {
            "quality/auc": self.challenger_auc,
            "quality/ne": ne,
            "nightly/challenger_auc": self.challenger_auc,
            "nightly/challenger_ne": ne,
            "nightly/champion_auc": self.champion_auc,
            "nightly/champion_ne": self.champion_ne(self.base_rate),
        }

    def champion_ne(self, base_rate: float) -> float:
        """Return the champion's normalised entropy; from 1 on the champion is no better than a constant prediction."""
        constant = self.loss_of_constant(base_rate)
        return self.champion_logloss / constant if constant else math.inf

    def loss_of_constant(self, base_rate: float) -> float:
        """Return the mean loss of the best constant prediction; for clicks that is the entropy of the base rate."""
        return binary_entropy(base_rate) if self.constant_loss is None else self.constant_loss

    def is_overtaken(self, base_rate: float) -> bool:
        """Return True if the base rate predicts as well as the champion, and the challenger predicts better."""
        return self.saving > 0 and self.champion_ne(base_rate) >= 1

    def figures(self) -> dict[str, float]:
        """Return the comparison of champion and challenger as metrics for MLflow."""
        names = ("champion_logloss", "challenger_logloss", "saving", "saving_low", "saving_high", "needed", "rows")
        return {name: float(getattr(self, name)) for name in names}

    def sides(self) -> list[dict[str, Any]]:
        """Return two table rows, for champion and challenger: name and metrics by column title."""
        if self.constant_loss is not None:
            columns = {"RMSE": "rmse", "loss": "logloss"}
            return [
                {"name": side, **{title: getattr(self, f"{side}_{name}") for title, name in columns.items()}}
                for side in ("champion", "challenger")
            ]
        return [
            {
                "name": side,
                "NE": self.headline().get(f"nightly/{side}_ne"),
                "AUC": getattr(self, f"{side}_auc"),
                "log loss": getattr(self, f"{side}_logloss"),
            }
            for side in ("champion", "challenger")
        ]

    def explain(self) -> str:
        """Return the result of comparing champion and challenger, in one sentence."""
        relation = "above" if self.is_better else "not above"
        return (
            f"On {self.rows:,} rows the challenger has {'log loss' if self.constant_loss is None else 'loss'} "
            f"{self.challenger_logloss:.5f} against "
            f"{self.champion_logloss:.5f} of the champion; with probability {self.confidence:.0%} the saving "
            f"is above {self.saving_low:+.5f}, {relation} the required {self.needed:.5f}."
        )


def compare_losses(
    champion: NDArray[np.float64], challenger: NDArray[np.float64], *, margin: float, confidence: float, seed: int
) -> ChampionComparison:
    """Compare the losses of champion and challenger row by row.

    The mean saving is resampled by blocks of neighbouring rows. Neighbouring rows of a log often have the same user or
    session, so resampling single rows would understate the variance. The method is the non-overlapping block bootstrap
    (Carlstein, Annals of Statistics 14(3), 1986) with a percentile interval (Efron and Tibshirani, 1993, ch. 13). With
    at most `MOST_BLOCKS` rows, each row is a block.

    Args:
        champion: Loss of each row by the champion, in the order of the log.
        challenger: Loss of the same rows by the challenger, in the same order.
        margin: Required reduction of the champion's mean loss, as a share.
        confidence: Required confidence that the reduction exceeds the margin.
        seed: Seed of the resampling.
    """
    assert champion.shape == challenger.shape, "both are judged on the same rows"
    if not len(champion):
        raise DataError("There is no row on which to compare champion and challenger: give a day with rows.")
    if not np.isfinite(champion).all():
        raise DataError("The champion predicts NaN or infinity: roll back to another version with `shunter rollback`.")
    if not np.isfinite(challenger).all():
        raise TrainingError(
            "The challenger predicts NaN or infinity, so the champion stays: lower --learning-rate-share."
        )
    champion_loss, challenger_loss = float(champion.mean()), float(challenger.mean())
    low, high = one_sided_bounds(resampled_block_means(champion - challenger, seed), confidence)
    needed = margin * champion_loss
    return ChampionComparison(
        rows=len(champion),
        champion_logloss=champion_loss,
        challenger_logloss=challenger_loss,
        saving=champion_loss - challenger_loss,
        saving_low=low,
        saving_high=high,
        needed=needed,
        confidence=confidence,
        is_better=bool(low > needed),
        champion_low=one_sided_bounds(resampled_block_means(champion, seed), confidence)[0],
    )
