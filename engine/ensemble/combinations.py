"""Comparison of methods to weight, combine and calibrate members, each evaluated on rows outside of its fit."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from shunter.engine.ensemble.calibration import CalibrateBy, fit_line, fit_scale, fit_steps, log_losses
from shunter.engine.ensemble.selection import (
    MOST_ENUMERATED,
    disagreement,
    enumerated,
    fit_most,
    greedy,
    halves,
    normalised,
    select,
)
from shunter.engine.metrics import binary_entropy
from shunter.models.combination import Combination, CombineBy, Combiner

# Gain with which a candidate replaces the weighted mean of log odds: share of the log loss, and standard errors. The
# number of errors is larger than for one comparison, because the best of about thirty candidates is taken.
LEAST_SAVING, LEAST_ERRORS = 0.001, 3.0
MOST_ROWS = 50_000  # largest sample of each half
LEAST_OF_CLASS = 10  # fewest rows of either label in each quarter
QUANTILES = 129
CALIBRATIONS: tuple[CalibrateBy, ...] = ("none", "temperature", "platt", "isotonic")


@dataclass(frozen=True, kw_only=True)
class TriedCombination:
    """One fitted method to combine the members of an ensemble.

    Attributes:
        weights: float64 `[members]`, with sum 1.
        combination: Combination and calibration.
    """

    weights: np.ndarray
    combination: Combination

    def combine(self, logits: np.ndarray) -> np.ndarray:
        """Return the combined log odds, float64 `[rows]`, from the log odds of the members, `[members, rows]`."""
        with torch.no_grad():
            members, weights = torch.from_numpy(logits.T.astype(np.float64)), torch.from_numpy(self.weights)
            return Combiner(self.combination)(members, weights).numpy()


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Predictions of members for rows with positive weight.

    Attributes:
        labels: 0 or 1, `[rows]`.
        logits: Predicted log odds, `[members, rows]`.
        weights: Weight of each row, `[rows]`, positive.
    """

    labels: np.ndarray
    logits: np.ndarray
    weights: np.ndarray

    def of(self, rows: np.ndarray) -> "Rows":
        """Return a subset of the rows."""
        return Rows(labels=self.labels[rows], logits=self.logits[:, rows], weights=self.weights[rows])

    def losses(self, combined: np.ndarray) -> np.ndarray:
        """Return the log loss of each row for combined log odds, `[rows]`."""
        return log_losses(self.labels, combined)

    @property
    def has_both(self) -> bool:
        """Return True if there are enough rows of either label for a fit."""
        positives = int(np.count_nonzero(self.labels))
        return min(positives, len(self.labels) - positives) >= LEAST_OF_CLASS


@dataclass(frozen=True, kw_only=True)
class CombinationComparison:
    """Result of comparing the methods to combine the members of an ensemble.

    Attributes:
        winner: Candidate that replaces the present combination; None if no candidate is significantly better.
        ne: NE of each candidate by its label, over both halves, each predicted by the fit on the other half. The label
            of the present combination is `PRESENT`.
    """

    winner: TriedCombination | None
    ne: dict[str, float]


PRESENT = "present"


def compare_combinations(
    rows: Rows, first: np.ndarray, second: np.ndarray, present: np.ndarray, *, single: int, seed: int, most: int | None
) -> CombinationComparison | None:
    """Compare all methods to combine the members of an ensemble; return None if there are too few rows.

    Each half is predicted by the fit on the other half. A fit uses one quarter of all rows for the weights, and one
    quarter for the calibration. The winner is the fit on the first half, so that no fit uses the second half.

    Args:
        rows: All rows.
        first: Row numbers of the half whose fit is returned.
        second: Row numbers of the other half.
        present: Log odds of the present combination, `[rows]`; each half is predicted by the fit on the other half.
        single: Index of the best member, which alone is also a candidate.
        seed: Seed of the quarters.
        most: Largest number of members with a weight; None is no limit.
    """
    parts = [_sample(first), _sample(second)]
    fits = [_Fit.of(rows.of(part), single, seed, most) for part in parts]
    if not all(fit.may_enter for fit in fits):
        return None
    evaluated = [rows.of(part) for part in reversed(parts)]
    counts = np.concatenate([one.weights for one in evaluated])
    shares = counts / counts.sum()
    entropy = binary_entropy(float(shares @ np.concatenate([one.labels for one in evaluated])))
    before = np.concatenate([one.losses(present[part]) for one, part in zip(evaluated, reversed(parts), strict=True)])
    ne, best, best_saving = {PRESENT: float(shares @ before) / entropy}, None, 0.0
    for combination_tried, other in zip(*(fit.candidates() for fit in fits), strict=True):
        after = np.concatenate(
            [one.losses(by.combine(one.logits)) for one, by in zip(evaluated, (combination_tried, other), strict=True)]
        )
        ne[combination_tried.combination.label] = float(shares @ after) / entropy
        saving = float(shares @ (before - after))
        error = math.sqrt(shares**2 @ (before - after - saving) ** 2)
        enough = max(LEAST_ERRORS * error, LEAST_SAVING * float(shares @ before))
        if saving > max(enough, best_saving):
            best, best_saving = combination_tried, saving
    if best is not None:  # must be better on the whole second half too, including rows that were not sampled
        unseen = rows.of(second)
        loss = (unseen.weights @ unseen.losses(one) for one in (best.combine(unseen.logits), present[second]))
        best = best if next(loss) < next(loss) else None
    return CombinationComparison(winner=best, ne=ne)


def _sample(half: np.ndarray) -> np.ndarray:
    """Return row numbers spread evenly over a half, which is sorted by label."""
    return half[:: math.ceil(len(half) / MOST_ROWS)]


@dataclass(frozen=True, kw_only=True)
class _Fit:
    """Combination candidates fitted on one half of the rows: weights on one part of it, calibration on the other."""

    weighed: Rows
    calibrated: Rows
    single: int
    most: int | None

    @classmethod
    def of(cls, rows: Rows, single: int, seed: int, most: int | None) -> "_Fit":
        weighed, calibrated = halves(rows.labels, seed)
        return cls(weighed=rows.of(weighed), calibrated=rows.of(calibrated), single=single, most=most)

    @property
    def may_enter(self) -> bool:
        return self.weighed.has_both and self.calibrated.has_both

    def candidates(self) -> Iterator[TriedCombination]:
        """Yield the candidates in an order that does not depend on the rows."""
        members = len(self.weighed.logits)
        yield from self._by("single", np.eye(members)[self.single], ("logits",))
        if members == 1:
            return
        weighed = self.weighed
        fitted = fit_most(weighed.labels, weighed.logits, weighed.weights, self.most)
        yield from self._by("fitted", fitted, ("logits", "probabilities"))
        chosen = greedy(weighed.labels, weighed.logits, weighed.weights, self.most)
        yield from self._by("greedy", chosen, ("logits", "probabilities"))
        # Equal weights for members with low error and high disagreement.
        shares = weighed.weights / weighed.weights.sum()
        errors = np.array([shares @ weighed.losses(one.astype(np.float64)) for one in weighed.logits])
        subset = enumerated if members <= MOST_ENUMERATED else select
        size = min(self.most or math.ceil(members / 2), members)
        few = list(subset(*normalised(errors, disagreement(weighed.logits)), size))
        yield from self._by(
            "diverse", np.bincount(few, minlength=members) / len(few), ("logits", "probabilities", "ranks", "votes")
        )
        yield from self._stacked(fitted)

    def _stacked(self, fitted: np.ndarray) -> Iterator[TriedCombination]:
        """Yield stacking candidates: a logistic regression on the members with a nonzero weight in `fitted`."""
        used = np.flatnonzero(fitted)
        weights = np.zeros(len(fitted))
        weights[used], intercept = fit_line(self.weighed.labels, self.weighed.logits[used], self.weighed.weights)
        slope = float(weights.sum())
        if slope <= 0:
            weights, slope = fitted, 0.0  # predicts the base rate
        plain = Combination(slope=slope, intercept=intercept)
        yield from self._calibrated("stacked", weights / weights.sum(), plain, ("none", "isotonic"))

    def _by(self, how: str, weights: np.ndarray, kinds: Sequence[CombineBy]) -> Iterator[TriedCombination]:
        base = np.average(self.weighed.labels, weights=self.weighed.weights)
        for by in kinds:
            levels, calibrations = None, CALIBRATIONS
            if by in ("ranks", "votes"):
                levels = np.linspace(0, 1, QUANTILES) if by == "ranks" else np.array([1 - base])
                calibrations = ("platt", "isotonic")
            references = () if levels is None else np.quantile(self.weighed.logits, levels, axis=1).T.tolist()
            plain = Combination(by=by, references=tuple(map(tuple, references)))
            yield from self._calibrated(f"{how}-{by}", weights, plain, calibrations)

    def _calibrated(
        self, label: str, weights: np.ndarray, plain: Combination, calibrations: Sequence[CalibrateBy]
    ) -> Iterator[TriedCombination]:
        rows = self.calibrated
        combined = TriedCombination(weights=weights, combination=plain).combine(rows.logits)
        for calibrate_by in calibrations:
            found = replace(plain, label=label if calibrate_by == "none" else f"{label}-{calibrate_by}")
            if calibrate_by == "temperature":
                found = replace(found, slope=fit_scale(rows.labels, combined, rows.weights))
            elif calibrate_by == "platt":
                slopes, intercept = fit_line(rows.labels, combined[np.newaxis], rows.weights)
                found = replace(found, slope=float(slopes[0]), intercept=intercept)
            elif calibrate_by == "isotonic":
                found = replace(found, knots=fit_steps(rows.labels, combined, rows.weights))
            yield TriedCombination(weights=weights, combination=found)
