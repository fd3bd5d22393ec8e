"""Calibration of probabilities: base rate at each predicted probability, as numbers and as a plot."""

import math
from typing import TYPE_CHECKING

import numpy as np

from shunter.engine.metrics import predict
from shunter.frozen import Frozen
from shunter.models.spec import NumberLabel
from shunter.statistics.intervals import wilson_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 15


class ReliabilityBin(Frozen):
    """Rows with similar predictions.

    Attributes:
        rows: Number of rows; rows with equal predictions are in the same bin, so that bins can differ in size.
        mean_prediction: Mean prediction of the rows.
        base_rate: Share of positives among the rows, or their mean label if the label is numeric.
        low: Lower end of the 95 % interval of the base rate, by Wilson's score (JASA 22, 1927).
        high: Upper end of the interval.
    """

    rows: int
    mean_prediction: float
    base_rate: float
    low: float
    high: float


def reliability(
    labels: np.ndarray,
    logits: np.ndarray,
    weights: np.ndarray | None = None,
    bins: int = BINS,
    number: NumberLabel | None = None,
) -> tuple[ReliabilityBin, ...]:
    """Divide the rows, sorted by prediction, into bins of about equal size.

    Args:
        labels: 0 or 1, `[rows]`.
        logits: Predicted log odds, `[rows]`.
        weights: Weights of the rows, `[rows]`; the means are weighted, the counts are not. None weighs all rows
            equally.
        bins: Largest number of bins.
        number: Description of a numeric label; None for clicks. The interval of a mean numeric label assumes a normal
            distribution.
    """
    predictions = np.exp(-np.logaddexp(0.0, -logits.astype(np.float64))) if number is None else predict(logits, number)
    weights = np.ones(len(labels)) if weights is None else weights.astype(np.float64)
    edges = np.unique(np.quantile(predictions, np.linspace(0, 1, bins + 1)[1:-1]))
    bin_of_row = np.searchsorted(edges, predictions, side="right")
    rows = np.bincount(bin_of_row, minlength=len(edges) + 1)
    totals = np.bincount(bin_of_row, weights, minlength=len(rows))
    predicted = np.bincount(bin_of_row, weights * predictions, minlength=len(rows))
    positives = np.bincount(bin_of_row, weights * labels, minlength=len(rows))
    squares = np.bincount(bin_of_row, weights * labels.astype(np.float64) ** 2, minlength=len(rows))
    found = []
    for count, total, prediction, positive, square in zip(rows, totals, predicted, positives, squares, strict=True):
        if total:
            mean = positive / total
            if number is None:
                low, high = wilson_interval(mean, int(count))
            else:
                error = 1.96 * math.sqrt(max(square / total - mean**2, 0.0) / int(count))
                low, high = mean - error, mean + error
            found.append(
                ReliabilityBin(
                    rows=int(count),
                    mean_prediction=prediction / total,
                    base_rate=positive / total,
                    low=low,
                    high=high,
                )
            )
    return tuple(found)


def expected_calibration_error(bins: tuple[ReliabilityBin, ...]) -> float:
    """Return the mean distance between prediction and base rate of the bins, weighted by their rows."""
    rows = sum(bin_.rows for bin_ in bins)
    return sum(bin_.rows * abs(bin_.mean_prediction - bin_.base_rate) for bin_ in bins) / rows


def calibration_figure(bins: tuple[ReliabilityBin, ...], title: str, *, is_number: bool = False) -> "Figure":
    """Plot the base rate of each bin over its mean prediction with intervals, and the number of rows below.

    Args:
        bins: Bins of the predictions.
        title: Title of the plot.
        is_number: Whether the label is numeric, so that labels and predictions may be negative.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 5.6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    predictions, rates = [bin_.mean_prediction for bin_ in bins], [bin_.base_rate for bin_ in bins]
    errors = [
        [rate - bin_.low for rate, bin_ in zip(rates, bins, strict=True)],
        [bin_.high - rate for rate, bin_ in zip(rates, bins, strict=True)],
    ]
    top = 1.05 * max(*predictions, *(bin_.high for bin_ in bins))
    bottom = min(0.0, *predictions, *(1.05 * bin_.low for bin_ in bins)) if is_number else 0.0
    upper.plot([bottom, top], [bottom, top], color="0.6", linestyle="--", linewidth=1, label="perfectly calibrated")
    upper.errorbar(predictions, rates, yerr=errors, fmt="o", markersize=4.5, capsize=2.5, label="found, with 95 %")
    upper.set_ylabel("mean label" if is_number else "share of positives")
    upper.set_xlim(bottom, top)
    upper.set_ylim(bottom, top)
    upper.set_title(title, fontsize=11)
    upper.legend(frameon=False, loc="upper left")
    lower.vlines(predictions, 0, [bin_.rows for bin_ in bins], linewidth=5, alpha=0.6)
    lower.set_ylim(bottom=0)
    lower.set_xlabel(f"predicted {'number' if is_number else 'probability'} (mean of the bin)")
    lower.set_ylabel("rows")
    for axes in (upper, lower):
        axes.grid(visible=True, color="0.92")
        axes.set_axisbelow(True)
    return figure
