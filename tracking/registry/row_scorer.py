"""Base class of registered models, which encodes raw rows as for training, counts their values and scores them."""

import warnings
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from shunter.errors import UnusableValuesWarning

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from shunter.ingestion.encoding.encoded import EncodedRows
    from shunter.ingestion.encoding.encoder import Encoder
    from shunter.ingestion.encoding.value_counts import ValueCounts

ROWS_AT_ONCE = 8_192


class RowScorer(ABC):
    """Scorer of raw rows.

    Attributes:
        kind: Kind of the model, `click` or `ranking`.
        encoder: Encoder of the data set that the model was trained on.
        max_unknown: Largest share of a column's values that may be unknown or unreadable in `predict`; None for any.
    """

    kind: ClassVar[str]

    def __init__(self, encoder: "Encoder") -> None:
        self.encoder = encoder
        self.max_unknown: float | None = None

    def get_raw_model(self) -> "RowScorer":
        """Return the scorer itself, which MLflow returns to the caller that loaded the model."""
        return self

    @property
    @abstractmethod
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, one for each score of a row."""

    @abstractmethod
    def scores_of(self, rows: "EncodedRows") -> np.ndarray:
        """Score at most `ROWS_AT_ONCE` rows, float64 `[rows]` or `[rows, outputs]`."""

    def score(self, rows: "EncodedRows") -> np.ndarray:
        """Score any number of encoded rows in batches of `ROWS_AT_ONCE`; return `[rows]` or `[rows, outputs]`."""
        cuts = [*range(0, len(rows), ROWS_AT_ONCE), len(rows)]
        return self._joined([self.scores_of(rows.part(*cut)) for cut in pairwise(cuts)])

    def score_block(self, block: "pl.DataFrame") -> "tuple[np.ndarray, ValueCounts]":
        """Encode and score raw rows, and count their values.

        Raises:
            DataError: A column is missing.
        """
        rows = self.encoder.encode_table(dict(zip(block.columns, block, strict=True)), block.height)
        return self.score(rows), self.encoder.count(rows)

    def predict(self, model_input: "pd.DataFrame", params: dict[str, Any] | None = None) -> "np.ndarray | pd.DataFrame":
        """Score raw rows; warn with `UnusableValuesWarning` about unknown and unreadable values.

        Args:
            model_input: Raw rows with the columns of the click log; unknown columns are ignored.
            params: Parameters of MLflow's protocol, which are ignored.

        Returns:
            float64 `[rows]` or `[rows, outputs]`.

        Raises:
            DataError: A column is missing, even if there are no rows, since MLflow drops misnamed columns.
            UnusableValuesError: More of a column's values than `max_unknown` are unknown or unreadable.
        """
        self.encoder.check_columns(model_input.columns)
        counts = self.encoder.count()
        scores: list[np.ndarray] = []
        for start in range(0, len(model_input), ROWS_AT_ONCE):
            rows = self.encoder.encode(model_input.iloc[start : start + ROWS_AT_ONCE])
            counts += self.encoder.count(rows)
            scores.append(self.scores_of(rows))
        counts.check(self.max_unknown)
        if notice := counts.notice():
            warnings.warn(UnusableValuesWarning(notice, counts.by_kind()), stacklevel=2)
        return self._joined(scores)

    def _joined(self, scores: list[np.ndarray]) -> np.ndarray:
        if scores:
            return np.concatenate(scores)
        return np.empty((0, len(self.outputs)) if len(self.outputs) > 1 else 0)
