"""Guaranteed quality of a model version: bounds measured on the test part, compared with the requested limits."""

import math
from dataclasses import asdict
from datetime import date
from typing import Any

import numpy as np

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset, days_of
from shunter.engine.ensemble.guarantee import LEAST_UNITS, Bounds, bounds
from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.ensemble.scored import score_test
from shunter.frozen import Frozen
from shunter.reporting.card.quality import user_field, user_groups
from shunter.requests import TrainRequest
from shunter.tracking.promise import PREFIX

ROWS, DAYS = "rows", "days"
DRIFT_ERRORS = 3.0  # number of standard errors between two base rates above which the difference counts as drift


class Promise(Frozen):
    """Requested limits of the quality, and bounds measured on rows that were not used to fit or select anything.

    Attributes:
        min_auc: Lowest acceptable AUC; None if there is no limit.
        max_ne: Highest acceptable NE; None if there is no limit.
        confidence: Confidence of the bounds.
        unit: Units that are assumed to be independent: `rows`, `days`, or the name of the user field.
        bounds: Confidence bounds of AUC and NE.
        drift: Difference of the newest day of the test part from validation, in one sentence; empty if no day is known.
    """

    min_auc: float | None
    max_ne: float | None
    confidence: float
    unit: str
    bounds: Bounds
    drift: str = ""

    @property
    def shortfall(self) -> str | None:
        """Limits that the bounds miss, with the differences, in one sentence; None if the bounds keep all limits."""
        found = self.bounds
        short = (
            self._shortfall("AUC", found.auc, found.auc_low, "at least", ("--min-auc", self.min_auc)),
            self._shortfall("NE", found.ne, found.ne_high, "at most", ("--max-ne", self.max_ne)),
        )
        return "; ".join(filter(None, short)) or None

    @property
    def sentence(self) -> str:
        """Guaranteed bounds of the quality, in one sentence."""
        found, confidence = self.bounds, f"{self.confidence:.4g}"
        parts = []
        if self.min_auc is not None:
            parts.append(f"AUC {found.auc:.4f} is at least {found.auc_low:.4f} (required {self.min_auc:g})")
        if self.max_ne is not None:
            parts.append(f"NE {found.ne:.4f} is at most {found.ne_high:.4f} (required {self.max_ne:g})")
        drift = f" {self.drift}" if self.drift else ""
        return f"With confidence {confidence}, by {found.rows:,} rows{self._units}, {'; '.join(parts)}.{drift}"

    @property
    def tags(self) -> dict[str, str]:
        """Tags of the registered version, from which the guarantee can be checked later."""
        asked = {"min_auc": self.min_auc, "max_ne": self.max_ne, "confidence": self.confidence}
        given = {f"{PREFIX}{name}": f"{value!r}" for name, value in asked.items() if value is not None}
        return {**given, f"{PREFIX}unit": self.unit, f"{PREFIX}words": self.sentence}

    @property
    def metrics(self) -> dict[str, float]:
        """Guaranteed bounds of the quality, as MLflow metrics."""
        names = ("auc", "auc_low", "bootstrap_low", "delong_low", "ne", "ne_high", "rows", "units")
        return {f"{PREFIX}{name}": float(getattr(self.bounds, name)) for name in names}

    @property
    def as_json(self) -> dict[str, Any]:
        """Guaranteed bounds of the quality with all their values, for JSON output."""
        return {**self.model_dump(exclude={"bounds"}), "words": self.sentence, "bounds": asdict(self.bounds)}

    @property
    def _units(self) -> str:
        if self.unit == DAYS:
            return f" of {self.bounds.units:,} days"
        return "" if self.unit == ROWS else f" of {self.bounds.units:,} users (field {self.unit})"

    @property
    def _unbounded(self) -> str:
        if self.bounds.units < LEAST_UNITS:
            return f"{LEAST_UNITS} independent {'rows' if self.unit == ROWS else 'users or days'} are needed"
        return "it holds one class, or hardly any rows of the other"

    def _shortfall(
        self, name: str, measured: float, bound: float, at: str, limit: tuple[str, float | None]
    ) -> str | None:
        """Return how a bound misses the limit of an option."""
        option, asked = limit
        sign = 1 if at == "at least" else -1
        if asked is None or sign * bound >= sign * asked:
            return None
        if math.isnan(bound):
            return f"its {name} on the test part has no bound{self._units}: {self._unbounded}"
        return (
            f"with confidence {self.confidence:g} its {name} on the test part is {at} {bound:.4f}, which misses "
            f"{option} {asked:g} by {sign * (asked - bound):.4f} (measured: {measured:.4f})"
        )


def measure_promise(
    request: TrainRequest, dataset: Dataset, result: EnsembleResult, execution: Execution
) -> Promise | None:
    """Measure the bounds of the quality that a request guarantees; return None if the request sets no confidence.

    The test part was not used to fit or select anything: neither weights nor epochs, settings, members or calibration.

    Raises:
        CheckpointError: A file of the result is damaged.
        DataError: An array cannot be read.
    """
    confidence = request.promise.min_auc_confidence
    if confidence is None:
        return None
    labels, logits, weights = score_test(result.directory, dataset, execution).of_task(0)
    unit, groups = independent_units(dataset)
    known = np.arange(len(labels)) if weights is None else np.flatnonzero(weights)
    found = bounds(
        labels[known],
        logits[known],
        confidence=confidence,
        groups=None if groups is None else groups[known],
        seed=request.seed,
    )
    return Promise(
        min_auc=request.limits.min_auc,
        max_ne=request.promise.max_ne,
        confidence=confidence,
        unit=unit,
        bounds=found,
        drift=newest_day(dataset, labels, logits, known),
    )


def independent_units(dataset: Dataset) -> tuple[str, np.ndarray | None]:
    """Return the units of dependent rows in the test part: users, otherwise enough days, otherwise single rows.

    Returns:
        Name of the unit, and the unit of each row; None instead of the units if each row is a unit.
    """
    field = user_field(dataset)
    if field is not None:
        return field, user_groups(dataset, field)
    days = days_of(dataset, "test")
    if days is None or len(np.unique(days)) < LEAST_UNITS:
        return ROWS, None
    return DAYS, days


def newest_day(dataset: Dataset, labels: np.ndarray, logits: np.ndarray, known: np.ndarray) -> str:
    """Return a sentence about the difference of base rates between the newest test day and the validation part.

    Args:
        dataset: Data set.
        labels: Labels of the test part, 0 or 1, `[rows]`.
        logits: Predicted log odds, `[rows]`.
        known: Indices of the rows that have a label.
    """
    days = days_of(dataset, "test")
    if days is None:
        return ""
    of_known = days[known]
    newest = known[of_known == of_known.max()]
    rate, before = float(labels[newest].mean()), dataset.splits["validation"].base_rate
    error = math.sqrt(before * (1 - before) * (1 / len(newest) + 1 / dataset.splits["validation"].rows))
    drifts = "drifts" if abs(rate - before) > DRIFT_ERRORS * error else "does not drift"
    predicted = float(np.mean(1 / (1 + np.exp(-logits[newest].astype(np.float64)))))
    day = date.fromordinal(date(1970, 1, 1).toordinal() + int(of_known.max()))
    return (
        f"The base rate {drifts} from validation ({before:.4f}) to the newest day, {day} ({rate:.4f} of "
        f"{len(newest):,} rows, {predicted:.4f} predicted)."
    )
