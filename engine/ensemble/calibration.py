"""Calibration of log odds on held-out rows: temperature, Platt's logistic regression or isotonic regression.

The fits take labels (0 or 1), predicted log odds and positive weights of rows, `[rows]` each.
"""

from typing import Literal

import numpy as np

CalibrateBy = Literal["none", "temperature", "platt", "isotonic"]
SCALES = (0.05, 5.0)


def log_losses(labels: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Return the log loss of each row, in nats, `[rows]`."""
    return np.logaddexp(0.0, logits) - labels * logits


def fit_scale(labels: np.ndarray, logits: np.ndarray, row_weights: np.ndarray) -> float:
    """Return the factor on predicted log odds that minimises the log loss, within `SCALES`; the loss is convex in it.

    Args:
        labels: 0 or 1, `[rows]`.
        logits: Predicted log odds, `[rows]`.
        row_weights: Weight of each row, `[rows]`.
    """
    from scipy.optimize import minimize_scalar

    logits = logits.astype(np.float64)
    found = minimize_scalar(
        lambda scale: float(row_weights @ log_losses(labels, scale * logits)), bounds=SCALES, method="bounded"
    )
    return float(found.x)  # pyright: ignore[reportAttributeAccessIssue]


def fit_line(labels: np.ndarray, logits: np.ndarray, row_weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Fit a logistic regression of the labels on predicted log odds, with coefficients from 0 to the largest scale.

    With one predictor this is Platt's calibration ("Probabilistic Outputs for Support Vector Machines", 1999), with
    several it is stacking (Wolpert, "Stacked Generalization", 1992). The loss is convex, and L-BFGS-B keeps the bounds.

    The log odds have the shape `[predictors, rows]`, and the result is the coefficients, float64, and the intercept.
    """
    from scipy.optimize import minimize

    labels, logits = labels.astype(np.float64), logits.astype(np.float64)
    shares, count = row_weights / row_weights.sum(), len(logits)

    def loss_and_gradient(line: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = line[:-1] @ logits + line[-1]
        errors = shares * (np.exp(-np.logaddexp(0.0, -mixed)) - labels)
        return float(shares @ log_losses(labels, mixed)), np.append(logits @ errors, errors.sum())

    start = np.append(np.full(count, 1 / count), 0.0)
    bounds = [(0.0, SCALES[1])] * count + [(None, None)]
    found = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-11}).x
    return found[:-1], float(found[-1])


def fit_steps(labels: np.ndarray, logits: np.ndarray, row_weights: np.ndarray) -> tuple[tuple[float, float], ...]:
    """Fit an isotonic regression, as the points of a line through log odds (Zadrozny and Elkan, KDD 2002).

    The function is constant on each block of equal probabilities, and rises linearly between blocks. A block with only
    one label would have infinite log odds. Each block is therefore assumed to hold one more row, with the base rate as
    its label.

    Args:
        labels: 0 or 1, `[rows]`.
        logits: Predicted log odds, `[rows]`.
        row_weights: Weight of each row, positive, `[rows]`.

    Returns:
        Pairs of predicted log odds, ascending, and their calibrated log odds.
    """
    from scipy.optimize import isotonic_regression

    at, groups = np.unique(logits, return_inverse=True)
    counts = np.bincount(groups, row_weights)
    means = np.bincount(groups, row_weights * labels) / counts
    starts = isotonic_regression(means, weights=counts).blocks[:-1]
    rows, positives = np.add.reduceat(counts, starts), np.add.reduceat(counts * means, starts)
    base = positives.sum() / rows.sum()
    shares = np.maximum.accumulate((positives + base) / (rows + 1))
    odds = np.log(shares) - np.log1p(-shares)
    ends = np.append(starts[1:], len(at)) - 1
    points = {
        float(at[position]): float(value)
        for first, last, value in zip(starts, ends, odds, strict=True)
        for position in (first, last)
    }
    return tuple(points.items())
