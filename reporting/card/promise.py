"""The quality that a version promises: measured with bounds on the test part, and kept or missed."""

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from engine.config import Execution
from engine.data.dataset import Dataset
from engine.ensemble.guarantee import Bounds, bounds
from engine.ensemble.result import EnsembleResult
from engine.ensemble.scored import score_test
from reporting.card.quality import user_field, user_groups
from shunter.frozen import Frozen
from shunter.requests import TrainRequest
from tracking.promise import PREFIX

ROWS = "rows"


class Promise(Frozen):
    """What is asked for, and what holds on rows that nothing was fitted or chosen by.

    Attributes:
        min_auc: Lowest acceptable AUC; None where there is no limit.
        max_ne: Highest acceptable NE; None where there is no limit.
        confidence: Confidence of the bounds.
        unit: What is taken as independent: `rows`, or the users by the name of their field.
        bounds: Bounds of both figures.
    """

    min_auc: float | None
    max_ne: float | None
    confidence: float
    unit: str
    bounds: Bounds

    @property
    def missed(self) -> str | None:
        """What is missed and by how much, in one sentence; None where the promise is kept."""
        return "; ".join(filter(None, (self._auc_missed(), self._ne_missed()))) or None

    @property
    def words(self) -> str:
        """What holds, in one sentence."""
        found, confidence = self.bounds, f"{self.confidence:.4g}"
        parts = []
        if self.min_auc is not None:
            parts.append(f"AUC {found.auc:.4f} is at least {found.auc_low:.4f}, {self.min_auc:g} being asked for")
        if self.max_ne is not None:
            parts.append(f"NE {found.ne:.4f} is at most {found.ne_high:.4f}, {self.max_ne:g} being asked for")
        return f"With confidence {confidence}, by {found.rows:,} rows{self._units}, {'; '.join(parts)}."

    @property
    def tags(self) -> dict[str, str]:
        """What a version says of it, for whoever checks it later."""
        asked = {"min_auc": self.min_auc, "max_ne": self.max_ne, "confidence": self.confidence}
        given = {f"{PREFIX}{name}": f"{value!r}" for name, value in asked.items() if value is not None}
        return {**given, f"{PREFIX}unit": self.unit, f"{PREFIX}words": self.words}

    @property
    def metrics(self) -> dict[str, float]:
        """Figures for the run."""
        names = ("auc", "auc_low", "bootstrap_low", "delong_low", "ne", "ne_high", "rows", "units")
        return {f"{PREFIX}{name}": float(getattr(self.bounds, name)) for name in names}

    @property
    def told(self) -> dict[str, Any]:
        """All of it as plain values, for a script."""
        return {**self.model_dump(exclude={"bounds"}), "words": self.words, "bounds": asdict(self.bounds)}

    @property
    def _units(self) -> str:
        return "" if self.unit == ROWS else f" of {self.bounds.units:,} users (field {self.unit})"

    def _auc_missed(self) -> str | None:
        low, asked = self.bounds.auc_low, self.min_auc
        if asked is None or low >= asked:
            return None
        if math.isnan(low):
            return f"the test part is too small, or of one class, for a bound of its AUC{self._units}"
        return (
            f"with confidence {self.confidence:g} its AUC on the test part is at least {low:.4f}, which misses "
            f"--min-auc {asked:g} by {asked - low:.4f} (measured: {self.bounds.auc:.4f})"
        )

    def _ne_missed(self) -> str | None:
        high, asked = self.bounds.ne_high, self.max_ne
        if asked is None or high <= asked:
            return None
        if math.isnan(high):
            return f"the test part is too small, or of one class, for a bound of its NE{self._units}"
        return (
            f"with confidence {self.confidence:g} its NE on the test part is at most {high:.4f}, which misses "
            f"--max-ne {asked:g} by {high - asked:.4f} (measured: {self.bounds.ne:.4f})"
        )


def measure_promise(
    request: TrainRequest, dataset: Dataset, result: EnsembleResult, execution: Execution
) -> Promise | None:
    """Measure what a request asks to be promised; None where it asks for no confidence.

    The test part has fitted nothing and chosen nothing: neither weights nor epochs, settings, members or calibration.

    Args:
        request: What is asked for.
        dataset: Data that the result was trained on.
        result: What is to be registered.
        execution: Device and precision of the scoring.

    Raises:
        CheckpointError: A file of the result is damaged.
        DataError: An array cannot be read.
    """
    confidence = request.promise.min_auc_confidence
    if confidence is None:
        return None
    labels, logits, weights = score_test(result.directory, dataset, execution).of_task(0)
    field = user_field(dataset)
    groups = None if field is None else user_groups(dataset, field)
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
        unit=field or ROWS,
        bounds=found,
    )
