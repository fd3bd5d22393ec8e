"""Calibration of probabilities: base rate at each predicted probability, as numbers and as a plot."""

import html
import math

import numpy as np

from shunter.engine.metrics import predict
from shunter.frozen import Frozen
from shunter.models.spec import NumberLabel
from shunter.statistics import wilson_interval

BINS = 15
LEFT, TOP, SIDE, GAP, ROWS_HEIGHT = 62, 28, 380, 14, 80  # pixels of the panels: points above, rows below
GRID, BLUE = 'stroke="#e5e7eb"', 'stroke="#1f77b4"'


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


def calibration_svg(bins: tuple[ReliabilityBin, ...], title: str, *, is_number: bool = False) -> str:
    """Draw the base rate of each bin over its mean prediction with intervals, and the number of rows below, as SVG.

    Args:
        bins: Bins of the predictions.
        title: Title of the plot.
        is_number: Whether the label is numeric, so that labels and predictions may be negative.
    """
    high = max(0.0, *(1.05 * max(bin_.mean_prediction, bin_.high) for bin_ in bins))
    low = min(0.0, *(min(bin_.mean_prediction, 1.05 * bin_.low) for bin_ in bins)) if is_number else 0.0
    high = high if high > low else low + 1.0
    most = 1.05 * max(bin_.rows for bin_ in bins)

    def x(value: float) -> float:
        return LEFT + SIDE * (value - low) / (high - low)

    def y(value: float) -> float:
        return TOP + SIDE * (high - value) / (high - low)

    base = TOP + SIDE + GAP + ROWS_HEIGHT  # lower edge of the panel of rows
    parts = [_text(LEFT + SIDE / 2, 18, title, size=13)]
    for tick in _ticks(low, high):
        parts += [_line(x(tick), TOP, x(tick), base, GRID), _line(LEFT, y(tick), LEFT + SIDE, y(tick), GRID)]
        parts += [_text(x(tick), base + 15, f"{tick:g}"), _text(LEFT - 5, y(tick) + 4, f"{tick:g}", anchor="end")]
    for edge, height in ((TOP, SIDE), (TOP + SIDE + GAP, ROWS_HEIGHT)):
        parts.append(f'<rect x="{LEFT}" y="{edge}" width="{SIDE}" height="{height}" fill="none" stroke="#6b7280"/>')
    parts.append(_line(x(low), y(low), x(high), y(high), 'stroke="#9ca3af" stroke-dasharray="5 4"'))
    for bin_ in bins:
        middle, mark = x(bin_.mean_prediction), y(bin_.base_rate)
        parts.append(_line(middle, y(bin_.low), middle, y(bin_.high), BLUE))
        parts.append(f'<circle cx="{middle:.1f}" cy="{mark:.1f}" r="4" fill="#1f77b4"/>')
        parts.append(_line(middle, base, middle, base - ROWS_HEIGHT * bin_.rows / most, f'{BLUE} stroke-width="5"'))
    label, predicted = ("mean label", "number") if is_number else ("share of positives", "probability")
    parts += [
        _text(LEFT + 8, TOP + 16, f"{label} of each bin, with 95 % interval", anchor="start"),
        _text(LEFT + 8, TOP + 32, "dashed: perfectly calibrated", anchor="start"),
        _text(LEFT - 5, TOP + SIDE + GAP + 10, f"{most / 1.05:,.0f}", anchor="end"),
        _text(LEFT - 5, base, "rows", anchor="end"),
        _text(LEFT + SIDE / 2, base + 34, f"predicted {predicted} (mean of the bin)"),
    ]
    width, height = LEFT + SIDE + 14, base + 44
    lines = "\n".join(parts)
    size = f'width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif">'
    return f'{head}\n<rect {size} fill="#ffffff"/>\n{lines}\n</svg>\n'


def _ticks(low: float, high: float) -> list[float]:
    """Return four to ten multiples of 1, 2 or 5 times a power of ten between two values."""
    power = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = next(factor * power for factor in (5, 2, 1) if factor * power <= (high - low) / 4)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _line(x1: float, y1: float, x2: float, y2: float, stroke: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {stroke}/>'


def _text(x: float, y: float, text: str, *, anchor: str = "middle", size: int = 11) -> str:
    text = html.escape(text)
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="#374151">{text}</text>'
